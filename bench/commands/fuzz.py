"""`python -m bench fuzz`: malformed texts, on all cores."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.markup import escape

from anabranch.cli.show.tables import err, out, plain_table
from anabranch.errors import TaskError
from bench.commands.commands import measured
from bench.fuzz.experiment import MOST_GROWTH_MB, Outcome, fuzz

CHUNK = 2_500
MOST_SHOWN = 20


def experiment_fuzz(texts: int, first: int, jobs: int | None, json_file: Path | None) -> None:
    """Raises if a text was not refused or taken as it should be."""
    result = measured(lambda progress: _run(progress, texts, first, jobs), json_file)
    rows = [
        (kind, f"{count:,}", f"{result['taken'].get(kind, 0):,}")
        for kind, count in sorted(result["refused"].items())
    ]
    out.print(plain_table(("", "refused", "taken"), rows))
    out.print(
        f"{texts:,} texts in {result['seconds']:.0f} s, the slowest took"
        f" {result['slowest_s']:.2f} s; memory grew by {result['growth_mb']:.0f} MB."
    )
    for problem in result["problems"][:MOST_SHOWN]:
        err.print(escape(problem), soft_wrap=True)
    if result["problems"]:
        raise TaskError(
            f"{len(result['problems'])} of {texts:,} texts went wrong",
            remedy="Run one again with --first SEED --texts 1.",
        )


def _run(progress: Callable[[str], None], texts: int, first: int, jobs: int | None) -> Any:
    started = time.monotonic()
    outcomes: list[Outcome] = []
    # Spawned: a fork would begin with all that this process has in memory.
    with ProcessPoolExecutor(jobs or os.cpu_count(), get_context("spawn")) as pool:
        seeds = range(first, first + texts, CHUNK)
        work = [pool.submit(fuzz, seed, min(CHUNK, first + texts - seed)) for seed in seeds]
        try:
            for done in as_completed(work):
                outcomes.append(done.result())
                count = sum(one.count for one in outcomes)
                progress(f"{count:,} of {texts:,} texts")
        except BrokenProcessPool as error:
            raise TaskError("a process ended in the middle of a text") from error
    return _summary(outcomes) | {"seconds": time.monotonic() - started, "first": first}


def _summary(outcomes: list[Outcome]) -> dict[str, Any]:
    growth = max(one.growth_mb for one in outcomes)
    problems = [problem for one in outcomes for problem in one.problems]
    if growth > MOST_GROWTH_MB:
        problems.append(f"memory grew by {growth:.0f} MB")
    return {
        "texts": sum(one.count for one in outcomes),
        "refused": sum((one.refused for one in outcomes), Counter[str]()),
        "taken": sum((one.taken for one in outcomes), Counter[str]()),
        "problems": problems,
        "slowest_s": max(one.slowest_s for one in outcomes),
        "growth_mb": growth,
    }
