"""`anabranch bench` and `anabranch experiment`: progress while they run, a table at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.show.tables import err, out, plain_table, working
from anabranch.config.model import Durability
from anabranch.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = dict[str, Any]
Progress = Callable[[str], None]
Keep = Callable[[Result], None]


def measured(run: Callable[[Progress], Result], json_file: Path | None) -> Result:
    """Run with a spinner that says what is being done, or lines that do if there is no terminal;
    write the result before showing it."""
    if json_file:
        _check_writable(json_file)
    with working("Starting …") as say:
        result = run(say if err.is_terminal else err.print)
    if json_file:
        json_file.write_text(json.dumps(result, indent=2) + "\n")
    return result


def _check_writable(file: Path) -> None:
    """Before a long run, not after it."""
    if not file.parent.is_dir():
        raise ConfigError("there is no such folder", place=str(file.parent))
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError("this file cannot be written", place=str(file))


def measured_long(run: Callable[[Progress, Keep], Result], json_file: Path | None) -> Result:
    """`measured`, with the rows written as they come to a file beside it, one JSON object a line:
    it is left there if the run ends early."""
    if json_file is None:
        return measured(lambda progress: run(progress, lambda row: None), None)
    rows = json_file.with_name(json_file.name + ".rows")

    def keep(row: Result) -> None:
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")

    rows.unlink(missing_ok=True)
    try:
        result = measured(lambda progress: run(progress, keep), json_file)
    except BaseException:
        if rows.exists():
            err.print(f"What was measured until then is in {rows}.")
        raise
    rows.unlink(missing_ok=True)
    return result


def bench_hop(json_file: Path | None, rounds: int) -> None:
    from bench.hops import hop

    result = measured(lambda progress: hop.run(progress, rounds=rounds), json_file)
    ways = ("kept", "job", "bare")
    rows = [
        (
            f"{row['tuples']:,}",
            *(f"{row[way]['ms']:,.1f} ms" for way in ways),
            *(f"{row[way]['cpu_ms']:,.1f} ms" for way in ways),
        )
        for row in result["rows"]
    ]
    names = ("hop, kept plan", "hop, job", "bare job")
    out.print(plain_table(("tuples", *names, *("CPU" for _ in names)), rows))
    out.print(
        f"whole hop over the bare job: latency {result['latency_ratio']:.2f} and CPU"
        f" {result['cpu_ratio']:.2f} at 1,000 tuples, throughput {result['throughput_ratio']:.2f}"
        " at 1,000,000"
    )


def bench_log(json_file: Path | None, folder: Path, megabytes: int) -> None:
    from bench.hops import log

    result = measured(lambda progress: log.run(progress, folder, megabytes), json_file)
    rows = [
        (name, f"{result[key]['write']:,.0f} MB/s", f"{result[key]['read']:,.0f} MB/s")
        for name, key in (("the disk", "disk"), ("the log", "log"), ("of tuples", "tuples"))
    ]
    out.print(plain_table(("", "written", "read"), rows))
    out.print(
        f"tuples are packed to {result['packed_to']:.0%}; 1,000 bytes synced:"
        f" {result['syncs']['disk']:,.0f}/s by the disk, {result['syncs']['log']:,.0f}/s by the log"
    )


def with_spark(run: Callable[[SparkSession, Progress], Result], json_file: Path | None) -> Result:
    """`run` on a session of its own."""
    from anabranch.config.cluster import SiteConfig
    from anabranch.spark.own import OwnSpark

    def measure(progress: Progress) -> Result:
        spark = OwnSpark(SiteConfig(name="bench"), "bench", progress=progress)
        try:
            return run(spark.session, progress)
        finally:
            spark.close()

    return measured(measure, json_file)


def bench_kept(json_file: Path | None, rounds: int, keys: int) -> None:
    from bench.hops import kept

    result = with_spark(lambda spark, progress: kept.run(spark, progress, rounds, keys), json_file)
    rows = [
        (one["query"], f"{one['rows']:,}", *_three(one, "kept"), *_three(one, "job"))
        for one in result["evaluations"]
    ]
    three = ("median ms", "least", "CPU")
    heads = [f"{way}: {head}" for way in ("kept", "job") for head in three]
    out.print(plain_table(("query", "rows per input", *heads), rows))
    steps = [
        (one["query"], f"{one['ms']:.1f}", f"{one['cpu_ms']:.1f}", f"{one['per_s']:,.0f}")
        for one in result["changes"]
    ]
    out.print(plain_table(("universal operator", "ms per 1,000", "CPU ms", "changes/s"), steps))
    out.print(f"load of the machine when it began: {result['load']:.1f}")


def _three(row: Result, way: str) -> tuple[str, str, str]:
    return f"{row[way]:.2f}", f"{row[f'{way}_least']:.2f}", f"{row[f'{way}_cpu']:.2f}"


def bench_join(json_file: Path | None, seconds: float, tuples: int) -> None:
    from bench.hops import join

    result = with_spark(
        lambda spark, progress: join.run(spark, progress, seconds, tuples), json_file
    )
    rows = [
        (
            f"windows of {row['window_s']} s, latency",
            f"{row['spark_ms']:,.0f} ms",
            f"{row['ours_ms']:,.0f} ms",
            f"{row['ratio']:.2f}",
        )
        for row in result["rows"]
    ]
    first, last = result["rows"][0], result["rows"][-1]
    rows.append(
        (
            f"windows of {first['window_s']} s, rate",
            f"{result['spark_tuples_per_s']:,.0f}/s",
            f"{first['ours_tuples_per_s']:,.0f}/s",
            f"{result['rate_ratio']:.2f}",
        )
    )
    out.print(plain_table(("", "Spark's join", "ours", "ratio"), rows))
    out.print(
        f"cost per tuple at {last['window_s']} s over that at {first['window_s']} s:"
        f" {result['window_cost_ratio']:.2f}"
    )


def bench_aggregate(json_file: Path | None, tuples: int, keys: int) -> None:
    from bench.hops import aggregate

    result = with_spark(
        lambda spark, progress: aggregate.run(spark, progress, tuples, keys), json_file
    )
    rows = [
        (row["overlap"], f"{row['seconds']:.2f} s", f"{row['us_per_tuple']:.2f} µs")
        for row in result["rows"]
    ]
    out.print(plain_table(("width/slide", "time", "per tuple"), rows))
    out.print(f"ratio: {result['cost_ratio']:.2f}")


def bench_replay(json_file: Path | None, tuples: int) -> None:
    from bench.hops import replay

    result = with_spark(lambda spark, progress: replay.run(spark, progress, tuples), json_file)
    rows = [
        (
            "Parquet → selection → Parquet",
            f"{result['spark_tuples_per_s']:,.0f}/s",
            f"{result['ours_tuples_per_s']:,.0f}/s",
            f"{result['throughput_ratio']:.2f}",
        )
    ]
    out.print(plain_table(("", "Spark, availableNow", "ours", "ratio"), rows))


def bench_crowd(json_file: Path | None, seconds: float, tps: float) -> None:
    from bench.hops import crowd

    result = with_spark(lambda spark, progress: crowd.run(spark, progress, seconds, tps), json_file)
    rows = [
        (
            f"{row['tuples_per_s']:g}/s",
            f"{row['results']:,}",
            f"{row['p50_ms']:,.0f} ms",
            f"{row['p99_ms']:,.0f} ms",
            f"{row['cores']:.2f}",
            f"{row['threads']}",
        )
        for row in (result, result["tenfold"])
    ]
    out.print(plain_table(("each stream", "results", "p50", "p99", "cores", "threads"), rows))


def bench_kafka(
    json_file: Path | None, servers: str | None, seconds: float, durability: Durability
) -> None:
    from bench.hops import kafka

    result = with_spark(
        lambda spark, progress: kafka.run(spark, progress, servers, seconds, durability=durability),
        json_file,
    )
    rows = [
        (name, f"{row['p50_ms']:,.1f} ms", f"{row['p99_ms']:,.1f} ms", f"{row['results']:,}")
        for name, row in (("ours", result["ours"]), ("micro-batches", result["micro_batch"]))
    ]
    out.print(plain_table(("from record to record", "p50", "p99", "results"), rows))
    out.print(
        f"ours over micro-batches: {result['latency_ratio']:.3f} at the median,"
        f" {result['p99_ratio']:.3f} at the 99th percentile"
    )


def experiment_chain(json_file: Path | None, sizes: list[int]) -> None:
    from bench.hops import chain

    result = with_spark(lambda spark, progress: chain.run(sizes, progress, spark), json_file)
    rows = [
        (
            f"{row['tuples']:,}",
            row["differences"],
            f"{row['seconds']:.1f} s",
            f"{row['python_mb']:,.0f} MB",
            f"{row['jvm_mb']:,.0f} MB",
            f"{row['peak_mb']:,.0f} MB",
        )
        for row in result["rows"]
    ]
    names = ("tuples", "differences", "time", "Python", "JVM", "peak memory")
    out.print(plain_table(names, rows))
    out.print(f"peak memory of the largest over the smallest: {result['memory_ratio']:.2f}")
    if any(row["differences"] for row in result["rows"]):
        raise TaskError("the output is not what plain Spark gives")


def experiment_forward(json_file: Path | None, tps: int, seconds: float, keep: str) -> None:
    from bench.hops import forward

    result = measured(
        lambda progress: forward.run(progress, tps=tps, cut_s=seconds, keep=keep), json_file
    )
    rows = [
        ("before the cut", f"{result['near_tps']:,.0f}/s", f"{result['memory_mb']:,.0f} MB"),
        ("during it", f"{result['near_tps_cut']:,.0f}/s", f"{result['memory_mb_cut']:,.0f} MB"),
    ]
    out.print(plain_table(("", "at the plant", "its memory"), rows))
    out.print(
        f"{result['spilled_mb']:,.0f} MB were on its disk; the centre caught up in"
        f" {result['caught_up_s']:.1f} s, at {result['catch_up_tps']:,.0f} tuples/s"
    )
    forward.check(result)


def bench_windows(json_file: Path | None, seconds: int) -> None:
    from bench.hops import windows

    result = measured_long(lambda progress, keep: windows.run(progress, keep, seconds), json_file)
    rows = [
        (
            row["width"],
            "yes" if row["killed"] else "no",
            f"{row['source_mb']:,.0f} MB",
            f"{row['centre_mb']:,.0f} MB",
            f"{row['upstream_mb']:,.1f} MB",
            f"{row['state_mb']:,.1f} MB",
            row["snapshots"],
            f"{row['recovery_s']:.1f} s" if row["killed"] else "–",
        )
        for row in result["rows"]
    ]
    names = ("windows", "killed", "source", "centre", "kept upstream", "state", "snapshots", "back")
    out.print(plain_table(names, rows))


def experiment_kill(
    json_file: Path | None,
    *,
    kills: int,
    pauses: int,
    jvms: int,
    standby_first: int,
    both: int,
    seed: int,
) -> None:
    from bench.hops import kill

    result = measured_long(
        lambda progress, keep: kill.run(
            progress, keep, kills, pauses, jvms, standby_first, both, seed
        ),
        json_file,
    )
    rows = [
        (
            row["kind"],
            row["query"],
            row["options"],
            row["killed"],
            "yes" if row["took_over"] else "no",
            "–" if row["recovery_s"] is None else f"{row['recovery_s']:.2f} s",
            *(row[name] for name in kill.FAULTS),
        )
        for row in result["rows"]
    ]
    names = ("run", "query", "standby", "struck", "taken over", "recovery", *kill.FAULTS)
    out.print(plain_table(names, rows))
    kill.check(result)


def experiment_standby(json_file: Path | None, figures: Path | None, quick: bool) -> None:
    from bench.figures import require
    from bench.standby import experiment as standby
    from bench.standby import figures as standby_figures

    if figures:
        require()
    result = measured_long(lambda progress, keep: standby.run(progress, keep, quick), json_file)
    out.print(plain_table(standby_figures.COLUMNS, map(standby_figures.cells, result["rows"])))
    out.print()
    out.print(plain_table(("", "measured"), standby_figures.summary(result)))
    if figures:
        standby_figures.draw(result, figures)
        out.print(f"Figures and table are in {figures}.")


def experiment_approx(
    json_file: Path | None,
    figures: Path | None,
    data: Path | None,
    *,
    width: int,
    slide: int,
    part: float,
    workers: list[int],
    epsilons: list[float],
    real: bool,
    kills: int,
) -> None:
    from bench.approx import data as approx_data
    from bench.approx import experiment as approx
    from bench.approx import figures as approx_figures
    from bench.approx import sites as approx_sites
    from bench.figures import require

    if figures:
        require()
    files = approx_data.files_in(data) if data else []

    def run(progress: Progress) -> Result:
        rows = approx.run_synthetic(progress) + approx.run_regimes(progress)
        for file in files:
            rows += approx.run_file(
                file,
                progress,
                name=approx_data.name_of(file),
                width=width,
                slide=slide,
                part=part,
                workers=tuple(workers),
                epsilons=tuple(epsilons),
            )
        result: Result = {"rows": rows, "speed": approx.run_speed(progress)}
        if real:
            result["sites"] = approx_sites.run(progress, kills)
            result["recovery_ratio"] = result["sites"]["recovery_ratio"]
        return result

    result = measured(run, json_file)
    out.print(plain_table(approx_figures.COLUMNS, map(approx_figures.cells, result["rows"])))
    out.print()
    measures = result["speed"] | result.get("sites", {})
    out.print(plain_table(("", "measured"), [(k, str(v)) for k, v in measures.items()]))
    if figures:
        approx_figures.draw(result["rows"], figures)
        out.print(f"Figures are in {figures}.")


def experiment_placement(
    data: Path | None, json_file: Path | None, figures: Path | None, trials: int, seed: int
) -> None:
    from bench.figures import require
    from bench.placement import figures as drawing
    from bench.placement import runs

    if figures:
        require()
    result = measured(lambda progress: runs.run(progress, data, trials, seed), json_file)
    out.print(plain_table(drawing.COLUMNS, map(drawing.cells, result["rows"])))
    out.print(plain_table(drawing.VARIED, map(drawing.varied_cells, result["varied"])))
    out.print(plain_table(drawing.LARGE, map(drawing.large_cells, result["large"])))
    if figures:
        drawing.draw(result, figures)
        out.print(f"Figures and table are in {figures}.")


def experiment_replan(
    json_file: Path | None,
    figures: Path | None,
    *,
    phases: int,
    seconds: float,
    moves: int,
    seed: int,
) -> None:
    from bench.figures import require
    from bench.placement import live, live_figure

    if figures:
        require()
    result = with_spark(
        lambda spark, progress: live.run(spark, progress, phases, seconds, moves, seed), json_file
    )
    out.print(plain_table(live_figure.COLUMNS, map(live_figure.cells, result["rows"])))
    for line in live_figure.summary(result):
        out.print(line)
    if figures:
        out.print(f"The figure is {live_figure.draw(result, figures)}.")
    if not result["identical"]:
        raise TaskError("the output is not that of the run without moves")
