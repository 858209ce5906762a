"""The commands that measure against rivals in the same run, or check a promise at length."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from anabranch.config.model import Durability
from bench.commands.edges import app as edges

app = typer.Typer(
    name="python -m bench",
    help="Measure the product against others in the same run, or check its promises at length.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(edges)

JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here.")]


@app.command("hop")
def bench_hop(
    json: JsonFile = None,
    rounds: Annotated[int, typer.Option(help="Batches of 1,000 tuples to time.", min=5)] = 200,
) -> None:
    """One hop between sites against the bare Spark job in it."""
    from bench.commands.commands import bench_hop as measure

    measure(json, rounds)


@app.command("kept")
def bench_kept(
    json: JsonFile = None,
    rounds: Annotated[int, typer.Option(help="Evaluations of each to time.", min=20)] = 200,
    keys: Annotated[int, typer.Option(help="Of what changes, five rows each.", min=10)] = 10_000,
) -> None:
    """Kept queries against jobs, and the universal operator made of them."""
    from bench.commands.commands import bench_kept as measure

    measure(json, rounds, keys)


@app.command("log")
def bench_log(
    json: JsonFile = None,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="On the disk that is measured.")
    ] = Path(),
    megabytes: Annotated[int, typer.Option(help="Of tuples.", min=1)] = 1_000,
) -> None:
    """A stream's log against the disk's own pace."""
    from bench.commands.commands import bench_log as measure

    measure(json, folder, megabytes)


@app.command("join")
def bench_join(
    json: JsonFile = None,
    seconds: Annotated[float, typer.Option(help="How long each live run is timed.", min=5)] = 20.0,
    tuples: Annotated[int, typer.Option(help="Tuples of each stream in files.", min=200_000)] = (
        500_000
    ),
) -> None:
    """A windowed equi-join against Spark's own stream–stream join."""
    from bench.commands.commands import bench_join as measure

    measure(json, seconds, tuples)


@app.command("aggregate")
def bench_aggregate(
    json: JsonFile = None,
    tuples: Annotated[int, typer.Option(help="Tuples in the file.", min=100_000)] = 1_000_000,
    keys: Annotated[int, typer.Option(help="Groups.", min=1)] = 100,
) -> None:
    """Sliding windows against tumbling ones."""
    from bench.commands.commands import bench_aggregate as measure

    measure(json, tuples, keys)


@app.command("stage")
def bench_stage(
    json: JsonFile = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw figures 5 and 6 here.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and tuples.")] = False,
) -> None:
    """Window aggregation in shared state against Spark's own, and DuckDB alone."""
    from bench.commands.stage import bench_stage as measure

    measure(json, figures, quick)


@app.command("stage-faults")
def experiment_stage_faults(
    json: JsonFile = None,
    each: Annotated[
        int | None, typer.Option(help="Runs of each kind of failure; 10, or 1 if quick.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn by chance.")] = 1,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this failure; can be given several times.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With a quarter of the tuples.")] = False,
) -> None:
    """Tasks, servers, sites and databases of a stage that fail: no window lost or wrong."""
    from bench.commands.stage import experiment_stage_faults as measure

    measure(json, each, seed, kind or [], quick)


@app.command("replay")
def bench_replay(
    json: JsonFile = None,
    tuples: Annotated[int, typer.Option(help="In the file.", min=1)] = 5_000_000,
) -> None:
    """A file through a selection into a file, against Spark's own stream over it."""
    from bench.commands.commands import bench_replay as measure

    measure(json, tuples)


@app.command("crowd")
def bench_crowd(
    json: JsonFile = None,
    seconds: Annotated[float, typer.Option(help="To measure at each rate.", min=1)] = 30.0,
    tps: Annotated[float, typer.Option(help="Tuples a second of each stream.", min=0.1)] = 2.0,
) -> None:
    """A hundred queries at twenty sites of one process: how old results are at their sinks."""
    from bench.commands.commands import bench_crowd as measure

    measure(json, seconds, tps)


@app.command("kafka")
def bench_kafka(
    json: JsonFile = None,
    servers: Annotated[
        str | None,
        typer.Option(
            help="A broker: host:port. Topics are made there. Without it one is started, of what"
            " `make servers` fetched."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="To measure each.", min=1)] = 30.0,
    durability: Annotated[
        Durability, typer.Option(help="Of ours: what it keeps outlives the process, or power.")
    ] = "process",
) -> None:
    """Kafka to Kafka through a selection, against Spark's micro-batches."""
    from bench.commands.commands import bench_kafka as measure

    measure(json, servers, seconds, durability)


@app.command("chain")
def experiment_chain(
    json: JsonFile = None,
    tuples: Annotated[
        list[int] | None, typer.Option(help="Sizes to run; default 1,000,000 and 10,000,000.")
    ] = None,
) -> None:
    """Three sites in a row: whole output, bounded memory."""
    from bench.commands.commands import experiment_chain as measure

    measure(json, tuples or [1_000_000, 10_000_000])


@app.command("forward")
def experiment_forward(
    json: JsonFile = None,
    tps: Annotated[int, typer.Option(help="Tuples a second.", min=100)] = 5_000,
    seconds: Annotated[float, typer.Option(help="How long the centre is cut off.", min=5)] = 120.0,
    keep: Annotated[
        str, typer.Option(help="KEEP so much, and read it from the beginning meanwhile.")
    ] = "",
) -> None:
    """The centre is cut off while a plant goes on: it gets all later, and soon. Needs root."""
    from bench.commands.commands import experiment_forward as measure

    measure(json, tps, seconds, keep)


@app.command("shop")
def experiment_shop(
    json: JsonFile = None,
    seconds: Annotated[float, typer.Option(help="Of sales before the first mishap.", min=1)] = 60.0,
    per_s: Annotated[float, typer.Option(help="Sales a second in each store.", min=0.1)] = 20.0,
) -> None:
    """A shop chain on a real Kafka and PostgreSQL: stopped and started, its office killed."""
    from bench.commands.shop import experiment_shop as measure

    measure(json, seconds, per_s)


@app.command("windows")
def bench_windows(
    json: JsonFile = None,
    seconds: Annotated[int, typer.Option(help="How long each run replays.", min=20)] = 90,
) -> None:
    """What windows of 1 s, 10 min and 1 h take in memory; a site killed that holds an hour."""
    from bench.commands.commands import bench_windows as measure

    measure(json, seconds)


@app.command("kill")
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
    from bench.commands.commands import experiment_kill as measure

    measure(
        json,
        kills=kills,
        pauses=pauses,
        jvms=jvms,
        standby_first=standby_first,
        both=both,
        seed=seed,
    )


@app.command("placement")
def experiment_placement(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Latency matrices over time, one N×N matrix a file."),
    ] = None,
    json: JsonFile = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw them here, with the table.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Random plans of each kind.", min=2)] = 30,
    seed: Annotated[int, typer.Option(help="Of what is drawn by chance.")] = 1,
) -> None:
    """Placement methods side by side, on measured and generated latencies."""
    from bench.commands.commands import experiment_placement as measure

    measure(data, json, figures, trials, seed)


@app.command("replan")
def experiment_replan(
    json: JsonFile = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw it here.")] = None,
    phases: Annotated[int, typer.Option(help="How often the network changes.", min=2)] = 4,
    seconds: Annotated[float, typer.Option(help="Until operators move, each time.", min=5)] = 15.0,
    moves: Annotated[int, typer.Option(help="Random moves, compared with none.", min=0)] = 20,
    seed: Annotated[int, typer.Option(help="Of what is drawn by chance.")] = 1,
) -> None:
    """Eight sites whose network changes: operators follow it, and nothing is lost or repeated."""
    from bench.commands.commands import experiment_replan as measure

    measure(json, figures, phases=phases, seconds=seconds, moves=moves, seed=seed)


@app.command("simulate")
def experiment_simulate(
    seeds: Annotated[int, typer.Option(help="How many runs.", min=1)] = 1000,
    first: Annotated[int, typer.Option(help="Seed of the first run.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes; default one a core.", min=1)] = None,
    trace: Annotated[int | None, typer.Option(help="Only show the run of this seed.")] = None,
    moves: Annotated[
        int, typer.Option(help="So many random moves a run, and no faults.", min=0)
    ] = 0,
    changes: Annotated[
        int,
        typer.Option(
            help="So many changes of the network, which queries follow; no faults.", min=0
        ),
    ] = 0,
    early: Annotated[
        bool, typer.Option(help="Faults from the first moment on, and queries that come and go.")
    ] = False,
    json: JsonFile = None,
) -> None:
    """Failover in virtual time: crashes, pauses and cuts at random; nothing lost or repeated."""
    from bench.commands.simulate import experiment_simulate as simulate
    from bench.commands.simulate import show_trace
    from simulation.run import simulate as run_one

    run = partial(run_one, moves=moves, changes=changes, early=early)
    if trace is None:
        simulate(seeds, first, jobs, json, run)
    elif not show_trace(trace, run):
        raise typer.Exit(1)


@app.command("face")
def bench_face(
    json: JsonFile = None,
    sites: Annotated[int, typer.Option(help="Sites that are reported.", min=1)] = 50,
    operators: Annotated[int, typer.Option(help="What they run.", min=4)] = 200,
    seconds: Annotated[float, typer.Option(help="How long each view is looked at.", min=2)] = 15.0,
) -> None:
    """What one viewer of the dashboard costs, of a large system that is only reported."""
    from bench.commands.face import bench_face as measure

    measure(json, sites, operators, seconds)


@app.command("fuzz-api")
def experiment_fuzz_api(
    json: JsonFile = None,
    requests: Annotated[int, typer.Option(help="How many.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Of what is drawn by chance.")] = 1,
) -> None:
    """Requests drawn from the API's schema: none fails, and no reader changes anything."""
    from bench.commands.face import experiment_fuzz_api as run

    run(json, requests, seed)


@app.command("fuzz")
def experiment_fuzz(
    texts: Annotated[int, typer.Option(help="How many.", min=1)] = 100_000,
    first: Annotated[int, typer.Option(help="Seed of the first.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Processes; default one a core.", min=1)] = None,
    json: JsonFile = None,
) -> None:
    """Malformed scripts, CSV, JSON lines and cluster files: each is refused in one line, soon."""
    from bench.commands.fuzz import experiment_fuzz as run

    run(texts, first, jobs, json)


@app.command("standby")
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
    from bench.commands.commands import experiment_standby as measure

    measure(json, figures, quick)


@app.command("deadline")
def experiment_deadline(
    json: JsonFile = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw figure 7 here.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points.")] = False,
    real: Annotated[
        bool, typer.Option("--real/--simulated", help="On real sites as well, or not.")
    ] = True,
    scale: Annotated[
        float | None,
        typer.Option(
            help="Real sites: the paper's times, times this; default: the smallest that works.",
            min=1,
        ),
    ] = None,
) -> None:
    """Deadlines met and missed, by placement and scheduling; and what planning costs."""
    from bench.commands.deadline import experiment_deadline as measure

    measure(json, figures, quick, real, scale)


@app.command("approx")
def experiment_approx(
    json: JsonFile = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw them here.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Also on these readings: a file with a column a key and a row an interval, or a"
            " folder of such.",
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Rows in a window of the readings.", min=1)] = 60,
    slide: Annotated[int, typer.Option(help="Rows from one window to the next.", min=1)] = 20,
    learn: Annotated[
        float, typer.Option(help="Part of the windows to learn from.", min=0.1, max=0.9)
    ] = 0.6,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            help="How many, on the readings; may be repeated; default 13, with --figures 4 to 26.",
            min=2,
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            help="Bounds, on the readings; may be repeated; default 0.5 and 1, with --figures 0.3"
            " to 1.5.",
        ),
    ] = None,
    real: Annotated[
        bool, typer.Option("--real/--simulated", help="Also kill workers on real sites, or not.")
    ] = True,
    kills: Annotated[int, typer.Option(help="How many, on real sites.", min=1)] = 20,
) -> None:
    """Lost windows estimated from the others: how many workers, how often wrong."""
    from bench.commands.commands import experiment_approx as measure

    measure(
        json,
        figures,
        data,
        width=width,
        slide=slide,
        part=learn,
        workers=workers or ([13, 4, 7, 10, 17, 26] if figures else [13]),
        epsilons=epsilon or ([0.5, 1.0, 0.3, 0.75, 1.5] if figures else [0.5, 1.0]),
        real=real,
        kills=kills,
    )
