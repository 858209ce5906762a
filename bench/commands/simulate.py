"""`python -m bench simulate`: many seeds of the failover simulation, on all cores."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anabranch.cli.show.tables import err, out
from anabranch.errors import AnabranchError, ConfigError
from simulation.run import Outcome

Run = Callable[..., Outcome]
CHUNK = 50
GARBAGE = 50_000
"""Objects made before garbage is looked for: a run's own are let go of with its world."""
MOST_SHOWN = 3
"""Failing seeds whose whole trace is printed; of the others only the first line."""


def experiment_simulate(
    seeds: int, first: int, jobs: int | None, json_file: Path | None, run: Run
) -> None:
    """`run` is given each seed. Raises if a seed fails."""
    if json_file and not json_file.parent.is_dir():
        raise ConfigError("there is no such folder", place=str(json_file.parent))
    started = time.monotonic()
    failed: list[Outcome] = []
    totals = {"faults": 0, "moved": 0, "tuples": 0, "virtual_ms": 0}
    with _progress() as bar:
        work = bar.add_task("Simulating", total=seeds)
        for outcome in _outcomes(range(first, first + seeds), jobs or os.cpu_count() or 1, run):
            totals["faults"] += outcome.faults
            totals["moved"] += outcome.moved
            totals["tuples"] += outcome.tuples
            totals["virtual_ms"] += outcome.ended
            if outcome.problem:
                failed.append(outcome)
                bar.console.print(f"seed {outcome.seed}: {escape(outcome.problem)}")
            bar.advance(work)
    result = totals | {"seeds": seeds, "first": first, "seconds": time.monotonic() - started}
    if json_file:
        data = result | {"failed": [asdict(one) for one in failed]}
        json_file.write_text(json.dumps(data, indent=2) + "\n")
    _show(result, failed, run)


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(*columns, TimeRemainingColumn(), console=err, transient=True)


def _outcomes(seeds: range, jobs: int, run: Run) -> Iterator[Outcome]:
    with ProcessPoolExecutor(jobs, initializer=_begin) if jobs > 1 else nullcontext() as pool:
        yield from pool.map(run, seeds, chunksize=CHUNK) if pool else map(run, seeds)


def _begin() -> None:
    """A fifth of a run would be looking for garbage among what is there for good."""
    gc.freeze()
    gc.set_threshold(GARBAGE)


def _show(result: dict[str, Any], failed: list[Outcome], run: Run) -> None:
    for one in failed[:MOST_SHOWN]:
        show_trace(one.seed, run)
    out.print(
        f"{result['seeds']:,} seeds, {result['faults']:,} faults,"
        f" {result['moved']:,} take-overs and moves, {result['tuples']:,} tuples,"
        f" {result['virtual_ms'] / 3.6e6:.1f} virtual hours in {result['seconds']:.0f} s:"
        f" {len(failed)} failed"
    )
    if failed:
        numbers = ", ".join(str(one.seed) for one in failed[:20])
        raise AnabranchError(f"seeds failed: {numbers}", remedy="Replay one with --trace SEED.")


def show_trace(seed: int, run: Run) -> bool:
    """One run, event by event; whether all was well."""
    outcome = run(seed, trace=True)
    for line in outcome.lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    verdict = outcome.problem or f"at {outcome.ended}: {outcome.tuples} tuples, all as they should"
    out.print(f"seed {seed}: {verdict}", markup=False, highlight=False, soft_wrap=True)
    return not outcome.problem
