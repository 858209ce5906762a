"""`anabranch bench` and `anabranch experiment`: progress while they run, a table at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anabranch.cli.show import err, out, plain_table
from anabranch.errors import ConfigError

Result = dict[str, Any]
Progress = Callable[[str], None]


def measured(run: Callable[[Progress], Result], json_file: Path | None) -> Result:
    """Run with a spinner that says what is being done; write the result before showing it."""
    if json_file and not json_file.parent.is_dir():
        raise ConfigError("there is no such folder", place=str(json_file.parent))
    with err.status("Starting …") as spinner:
        result = run(spinner.update)
    if json_file:
        json_file.write_text(json.dumps(result, indent=2) + "\n")
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


def experiment_chain(json_file: Path | None, sizes: list[int]) -> None:
    from anabranch.bench import chain
    from anabranch.config.cluster import SiteConfig
    from anabranch.coordinator.launch import OwnSpark

    def run(progress: Progress) -> Result:
        plain = OwnSpark(SiteConfig(name="plain"), progress)
        try:
            return chain.run(sizes, progress, plain.session)
        finally:
            plain.close()

    result = measured(run, json_file)
    rows = [
        (f"{row['tuples']:,}", row["differences"], f"{row['seconds']:.1f} s",
         f"{row['python_mb']:,.0f} MB", f"{row['jvm_mb']:,.0f} MB", f"{row['peak_mb']:,.0f} MB")
        for row in result["rows"]
    ]  # fmt: skip
    names = ("tuples", "differences", "time", "Python", "JVM", "peak memory")
    out.print(plain_table(names, rows))
    out.print(f"peak memory of the largest over the smallest: {result['memory_ratio']:.2f}")
