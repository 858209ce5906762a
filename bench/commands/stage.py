"""`python -m bench stage` and `python -m bench stage-faults`."""

from __future__ import annotations

from pathlib import Path

import typer

from anabranch.cli.show.tables import out, plain_table
from anabranch.errors import ConfigError
from bench.commands.commands import measured, measured_long


def bench_stage(json_file: Path | None, figures: Path | None, quick: bool) -> None:
    from bench.stage import bench as stage
    from bench.stage import figures as stage_figures

    if figures:
        stage_figures.require()
    size = stage.QUICK if quick else stage.FULL
    result = measured(lambda progress: stage.run(progress, size), json_file)
    rows = [
        (
            row["engine"],
            row["input"],
            f"{row['keys']:,}",
            row["zipf"],
            row["parallelism"],
            f"{row['tuples_per_s']:,.0f}/s",
            f"{row['cpu_s_per_million']:.2f} s",
            f"{row['state_bytes'] / 1e6:,.1f} MB",
        )
        for row in result["rows"]
    ]
    point = ("input", "keys", "skew", "cores")
    names = ("engine", *point, "throughput", "CPU per million", "state written")
    out.print(plain_table(names, rows))
    ratios = [
        (
            row["against"],
            row["input"],
            f"{row['keys']:,}",
            row["zipf"],
            row["parallelism"],
            f"{row['ratio']:.2f}",
        )
        for row in result["ratios"]
    ]
    out.print(plain_table(("stage against", *point, "ratio"), ratios))
    spent = [
        (
            row["input"],
            f"{row['keys']:,}",
            row["zipf"],
            row["parallelism"],
            f"{row['seconds']:.2f} s",
            *(f"{seconds:.2f} s" for seconds in row["parts"].values()),
        )
        for row in result["rows"]
        if row["engine"] == "stage"
    ]
    parts = next(row["parts"] for row in result["rows"] if row["engine"] == "stage")
    out.print(plain_table(("stage spent", "keys", "skew", "cores", "in all", *parts), spent))
    out.print(f"throughput with checkpoints every second: {result['checkpoint_ratio']:.2f}")
    out.print(f"time per tuple, width/slide = 60 over 1: {result['slide_ratio']:.2f}")
    out.print(
        f"restart, Spark's time over ours: {result['restart_ratio']:.1f},"
        f" {result['spare_restart_ratio']:.1f} if we have a spare"
    )
    if result["flink"]:
        out.print(result["flink"])
    if figures:
        stage_figures.draw(result["rows"], figures)


def experiment_stage_faults(
    json_file: Path | None, each: int | None, seed: int, kinds: list[str], quick: bool
) -> None:
    from bench.stage import faults as stage_faults

    wanted = tuple(kinds) or tuple(stage_faults.MEANS)
    if unknown := [kind for kind in wanted if kind not in stage_faults.MEANS]:
        remedy = f"There are {', '.join(stage_faults.MEANS)}."
        raise ConfigError(f"there is no failure '{unknown[0]}'", remedy=remedy)
    size = {"each": each or 1, "rows": 50_000} if quick else {"each": each or 10}
    result = measured_long(
        lambda progress, keep: stage_faults.run(progress, keep, seed=seed, kinds=wanted, **size),
        json_file,
    )
    rows = [
        (
            stage_faults.MEANS[kind],
            len(of),
            sum(bool(one["difference"]) for one in of),
            f"{max(one['took_s'] for one in of):.1f} s",
        )
        for kind in stage_faults.MEANS
        if (of := [one for one in result["runs"] if one["kind"] == kind])
    ]
    out.print(plain_table(("what happened", "runs", "wrong", "longest run"), rows))
    for one in result["runs"]:
        if one["difference"]:
            out.print(f"{one['kind']} after {one['at_s']:.2f} s: {one['difference']}")
    if result["wrong"]:
        raise typer.Exit(1)
