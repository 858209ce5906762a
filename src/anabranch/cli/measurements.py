"""The commands that measure: benches and experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(help="Measure against plain Spark, in the same run.", no_args_is_help=True)
experiment = typer.Typer(help="Longer runs that check a promise.", no_args_is_help=True)

JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here.")]


@bench.command("hop")
def bench_hop(
    json: JsonFile = None,
    rounds: Annotated[int, typer.Option(help="Batches of 1,000 tuples to time.", min=5)] = 200,
) -> None:
    """One hop between sites against the bare Spark job in it."""
    from anabranch.cli.measure import bench_hop as measure

    measure(json, rounds)


@bench.command("join")
def bench_join(
    json: JsonFile = None,
    seconds: Annotated[float, typer.Option(help="How long each live run is timed.", min=5)] = 20.0,
    tuples: Annotated[int, typer.Option(help="Tuples of each stream in files.", min=200_000)] = (
        500_000
    ),
) -> None:
    """A windowed equi-join against Spark's own stream–stream join."""
    from anabranch.cli.measure import bench_join as measure

    measure(json, seconds, tuples)


@bench.command("aggregate")
def bench_aggregate(
    json: JsonFile = None,
    tuples: Annotated[int, typer.Option(help="Tuples in the file.", min=100_000)] = 1_000_000,
    keys: Annotated[int, typer.Option(help="Groups.", min=1)] = 100,
) -> None:
    """Sliding windows against tumbling ones."""
    from anabranch.cli.measure import bench_aggregate as measure

    measure(json, tuples, keys)


@experiment.command("chain")
def experiment_chain(
    json: JsonFile = None,
    tuples: Annotated[
        list[int] | None, typer.Option(help="Sizes to run; default 1,000,000 and 10,000,000.")
    ] = None,
) -> None:
    """Three sites in a row: whole output, bounded memory."""
    from anabranch.cli.measure import experiment_chain as measure

    measure(json, tuples or [1_000_000, 10_000_000])


@experiment.command("kill")
def experiment_kill(
    json: JsonFile = None,
    kills: Annotated[int, typer.Option(help="Runs with a primary killed.", min=0)] = 20,
    pauses: Annotated[int, typer.Option(help="Runs with one stopped and let go on.", min=0)] = 5,
    jvms: Annotated[int, typer.Option(help="Runs with only its JVM killed.", min=0)] = 5,
    standby_first: Annotated[
        int, typer.Option(help="Runs with its standby killed just before it.", min=0)
    ] = 5,
    both: Annotated[
        int, typer.Option(help="Runs with it and its standby killed at once.", min=0)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of what is drawn by chance.")] = 1,
) -> None:
    """Primaries killed at random under load: nothing lost, nothing twice."""
    from anabranch.cli.measure import experiment_kill as measure

    measure(
        json,
        kills=kills,
        pauses=pauses,
        jvms=jvms,
        standby_first=standby_first,
        both=both,
        seed=seed,
    )


@experiment.command("simulate")
def experiment_simulate(
    seeds: Annotated[int, typer.Option(help="How many runs.", min=1)] = 1000,
    first: Annotated[int, typer.Option(help="Seed of the first run.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes; default one a core.", min=1)] = None,
    trace: Annotated[int | None, typer.Option(help="Only show the run of this seed.")] = None,
    json: JsonFile = None,
) -> None:
    """Failover in virtual time: crashes, pauses and cuts at random; nothing lost or repeated."""
    from anabranch.cli.simulate import experiment_simulate as simulate
    from anabranch.cli.simulate import show_trace

    if trace is None:
        simulate(seeds, first, jobs, json)
    elif not show_trace(trace):
        raise typer.Exit(1)


@experiment.command("standby")
def experiment_standby(
    json: JsonFile = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw them here, with the table.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer points, a third of the time.")
    ] = False,
) -> None:
    """What a standby costs, and how soon it takes over, by batch size."""
    from anabranch.cli.measure import experiment_standby as measure

    measure(json, figures, quick)
