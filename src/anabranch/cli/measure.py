"""`anabranch bench` and `anabranch experiment`: progress while they run, a table at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.show import err, out, plain_table
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
    with err.status("Starting …") as spinner:
        result = run(spinner.update if err.is_terminal else err.print)
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
    from anabranch.bench import hop

    result = measured(lambda progress: hop.run(progress, rounds=rounds), json_file)
    rows = [
        ("1,000 tuples a batch, latency", f"{result['bare_ms']:.1f} ms",
         f"{result['hop_ms']:.1f} ms", f"{result['latency_ratio']:.2f}"),
        ("1,000,000 tuples, throughput", f"{result['bare_tuples_per_s']:,.0f}/s",
         f"{result['hop_tuples_per_s']:,.0f}/s", f"{result['throughput_ratio']:.2f}"),
    ]  # fmt: skip
    out.print(plain_table(("", "bare Spark job", "whole hop", "ratio"), rows))


def with_spark(run: Callable[[SparkSession, Progress], Result], json_file: Path | None) -> Result:
    """`run` on a session of its own."""
    from anabranch.config.cluster import SiteConfig
    from anabranch.coordinator.launch import OwnSpark

    def measure(progress: Progress) -> Result:
        spark = OwnSpark(SiteConfig(name="bench"), progress)
        try:
            return run(spark.session, progress)
        finally:
            spark.close()

    return measured(measure, json_file)


def bench_join(json_file: Path | None, seconds: float, tuples: int) -> None:
    from anabranch.bench import join

    result = with_spark(
        lambda spark, progress: join.run(spark, progress, seconds, tuples), json_file
    )
    rows = [
        (f"windows of {row['window_s']} s, latency", f"{row['spark_ms']:,.0f} ms",
         f"{row['ours_ms']:,.0f} ms", f"{row['ratio']:.2f}")
        for row in result["rows"]
    ]  # fmt: skip
    first, last = result["rows"][0], result["rows"][-1]
    rows.append((
        f"windows of {first['window_s']} s, rate", f"{result['spark_tuples_per_s']:,.0f}/s",
        f"{first['ours_tuples_per_s']:,.0f}/s", f"{result['rate_ratio']:.2f}",
    ))  # fmt: skip
    out.print(plain_table(("", "Spark's join", "ours", "ratio"), rows))
    out.print(
        f"cost per tuple at {last['window_s']} s over that at {first['window_s']} s:"
        f" {result['window_cost_ratio']:.2f}"
    )


def bench_aggregate(json_file: Path | None, tuples: int, keys: int) -> None:
    from anabranch.bench import aggregate

    result = with_spark(
        lambda spark, progress: aggregate.run(spark, progress, tuples, keys), json_file
    )
    rows = [
        (row["overlap"], f"{row['seconds']:.2f} s", f"{row['us_per_tuple']:.2f} µs")
        for row in result["rows"]
    ]
    out.print(plain_table(("width/slide", "time", "per tuple"), rows))
    out.print(f"ratio: {result['cost_ratio']:.2f}")


def experiment_chain(json_file: Path | None, sizes: list[int]) -> None:
    from anabranch.bench import chain

    result = with_spark(lambda spark, progress: chain.run(sizes, progress, spark), json_file)
    rows = [
        (f"{row['tuples']:,}", row["differences"], f"{row['seconds']:.1f} s",
         f"{row['python_mb']:,.0f} MB", f"{row['jvm_mb']:,.0f} MB", f"{row['peak_mb']:,.0f} MB")
        for row in result["rows"]
    ]  # fmt: skip
    names = ("tuples", "differences", "time", "Python", "JVM", "peak memory")
    out.print(plain_table(names, rows))
    out.print(f"peak memory of the largest over the smallest: {result['memory_ratio']:.2f}")
    if any(row["differences"] for row in result["rows"]):
        raise TaskError("the output is not what plain Spark gives")


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
    from anabranch.bench import kill

    result = measured_long(
        lambda progress, keep: kill.run(
            progress, keep, kills, pauses, jvms, standby_first, both, seed
        ),
        json_file,
    )
    rows = [
        (row["kind"], row["query"], row["options"], row["killed"],
         "yes" if row["took_over"] else "no",
         "–" if row["recovery_s"] is None else f"{row['recovery_s']:.2f} s",
         *(row[name] for name in kill.FAULTS))
        for row in result["rows"]
    ]  # fmt: skip
    names = ("run", "query", "standby", "struck", "taken over", "recovery", *kill.FAULTS)
    out.print(plain_table(names, rows))
    kill.check(result)


def experiment_standby(json_file: Path | None, figures: Path | None, quick: bool) -> None:
    from anabranch.bench import standby, standby_figures

    if figures:
        standby_figures.require()
    result = measured_long(lambda progress, keep: standby.run(progress, keep, quick), json_file)
    out.print(plain_table(standby_figures.COLUMNS, map(standby_figures.cells, result["rows"])))
    out.print()
    out.print(plain_table(("", "measured"), standby_figures.summary(result)))
    if figures:
        standby_figures.draw(result, figures)
        out.print(f"Figures and table are in {figures}.")
