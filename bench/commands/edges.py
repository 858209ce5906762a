"""`python -m bench edges`: what becomes of a system whose surroundings fail."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.show.tables import out, plain_table
from bench.commands.commands import measured_long

app = typer.Typer(
    name="edges",
    help="Services that come late, networks that drop packets, disks that are full: is anything"
    " lost or repeated, and does all go on?",
    no_args_is_help=True,
)
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here.")]
Seed = Annotated[int, typer.Option(help="Of what is drawn by chance.")]


@app.command("late")
def late(
    json: JsonFile = None,
    away: Annotated[
        float, typer.Option(help="Seconds from `up` until Kafka and PostgreSQL are started.", min=1)
    ] = 75.0,
    stops: Annotated[int, typer.Option(help="Times that it is told to stop.", min=0)] = 1,
    kills: Annotated[int, typer.Option(help="Times that everything is killed.", min=0)] = 10,
    apart: Annotated[
        bool, typer.Option("--apart/--together", help="A process for each site, or one for all.")
    ] = True,
    seed: Seed = 1,
) -> None:
    """Kafka and PostgreSQL are started long after the system that needs them."""
    from bench.edges import late as scenario
    from bench.edges.orders import FAULTS

    result = measured_long(
        lambda progress, keep: scenario.run(
            progress, keep, away_s=away, kills=kills, stops=stops, seed=seed, apart=apart
        ),
        json,
    )
    rows = [
        (
            row["how"],
            *(f"{row['goes_on_s'][name]:.1f} s" for name in ("totals", "large")),
            *(row[name] for name in FAULTS),
        )
        for row in result["rows"]
    ]
    names = ("what", "goes on after: table", "topic", *FAULTS)
    out.print(plain_table(names, rows))
    _say_whole(result, FAULTS)
    scenario.check(result)


def _say_whole(result: dict[str, Any], faults: tuple[str, ...]) -> None:
    told = ", ".join(f"{result.get(name, 0)} {name}" for name in faults)
    out.print(f"All that was written, {' and '.join(map(str, result['results']))} results: {told}.")


@app.command("failover")
def failover(json: JsonFile = None) -> None:
    """PostgreSQL is failed over to a copy without the last second; what is missing is given up, or
    put back first."""
    from bench.edges import failover as scenario

    result = measured_long(scenario.both, json)
    rows = [
        (
            "put back" if row["put_back"] else "given up",
            f"{row['there']:,}",
            f"{row['acknowledged']:,}",
            f"{row['goes_on_s']:.1f} s",
            "yes" if row["whole"] else "no",
        )
        for row in result["rows"]
    ]
    names = ("missing rows", "there up to", "acknowledged up to", "goes on after", "all is right")
    out.print(plain_table(names, rows))
    for row in result["rows"]:
        scenario.check(row)


@app.command("stalls")
def stalls(
    json: JsonFile = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="disk, backend, database or broker; may be repeated; default all."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="For so long it stands still.", min=1)] = 20.0,
    seed: Seed = 1,
) -> None:
    """A disk that is full for a while, a database or a broker that stands still. Needs root."""
    from bench.edges import stalls as scenario
    from bench.edges.orders import FAULTS

    result = measured_long(
        lambda progress, keep: scenario.run(
            progress, keep, tuple(case or scenario.CASES), seconds=seconds, seed=seed
        ),
        json,
    )
    rows = [
        (
            row["case"],
            *(f"{row['goes_on_s'][name]:.1f} s" for name in ("totals", "large")),
            *(row[name] for name in FAULTS),
        )
        for row in result["rows"]
    ]
    out.print(plain_table(("what", "goes on after: table", "topic", *FAULTS), rows))
    _say_whole(result, FAULTS)
    scenario.check(result)


@app.command("cut")
def cut(
    json: JsonFile = None,
    recovery: Annotated[
        list[str] | None,
        typer.Option(
            help="The query's RECOVERY, such as 2s; may be repeated; default 2s and none."
        ),
    ] = None,
    sink: Annotated[
        list[str] | None, typer.Option(help="file or postgres; may be repeated; default both.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only this one; may be repeated.")] = None,
) -> None:
    """A primary's machine vanishes without a word, or its link comes and goes. Needs root."""
    from bench.edges import cut as scenario

    result = measured_long(
        lambda progress, keep: scenario.run(
            progress,
            keep,
            tuple(f"RECOVERY {one}" for one in recovery or ()) or tuple(scenario.PROMISED_S),
            tuple(case or scenario.CASES),
            tuple(sink or scenario.SINKS),
        ),
        json,
    )
    rows = [
        (
            row["recovery"] or "none",
            row["sink"],
            row["case"],
            f"{row['promised_s']['noticed_s']:.2f} s",
            f"{row['gap_s']:.2f} s",
            "yes" if row["took_over"] else "no",
            "yes" if row["fenced"] else "no",
            *(row[name] for name in scenario.FAULTS),
        )
        for row in result["rows"]
    ]
    names = (
        "RECOVERY",
        "sink",
        "away",
        "noticed within",
        "no output for",
        "taken over",
        "old one stops",
        *scenario.FAULTS,
    )
    out.print(plain_table(names, rows))
    scenario.check(result)
