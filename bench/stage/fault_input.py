"""What the stages of `stage-faults` read, and what a batch recomputation makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.link.wire import EVENT_TIME, POSITION

WIDTH_US = 1_000_000
LATENESS_US = 200_000
START_US = 1_000_000_000


def write_input(
    folder: Path, files: int, rows: int, keys: int, seed: int, *, side_by_side: bool
) -> list[pa.Table]:
    """`files` of `rows` tuples each, a tenth of them out of order and some of those late. Each has
    a second of event time, one behind the other, or all of it, `side_by_side`; its tuples."""
    draw = np.random.default_rng(seed)
    folder.mkdir()
    parts = []
    for number in range(files):
        step = np.arange(rows) * (files if side_by_side else 1) * WIDTH_US // rows
        times = START_US + (0 if side_by_side else number * WIDTH_US) + step
        behind = np.where(draw.random(rows) < 0.1, draw.integers(0, 2 * LATENESS_US, rows), 0)
        part = pa.table(
            {
                "ts": times - behind,
                "key": draw.integers(0, keys, rows),
                "value": draw.integers(-1000, 1000, rows),
                "x": draw.random(rows),
            }
        )
        pq.write_table(part, folder / f"{number:03}.parquet", row_group_size=min(rows, 100_000))
        parts.append(part)
    return parts


def timely(tuples: pa.Table) -> pa.Table:
    """Those of a partition that are not late."""
    times = tuples.column("ts").to_numpy()
    newest = np.concatenate(([times[0]], np.maximum.accumulate(times)[:-1]))
    return tuples.filter(pa.array(times >= newest - LATENESS_US))


def recomputed(partitions: list[pa.Table], key: str = "key") -> list[tuple[Any, ...]]:
    """(end, key, sum, count, mean), by a few lines that share nothing with the stage."""
    tuples = pa.concat_tables([timely(one) for one in partitions])  # noqa: F841
    return duckdb.execute(
        f"SELECT (ts // {WIDTH_US} + 1) * {WIDTH_US} AS e, {key} AS k, sum(value)::BIGINT,"
        " count(*), avg(x) FROM tuples GROUP BY ALL ORDER BY e, k"
    ).fetchall()


def differences(found: list[dict[str, Any]], expected: list[tuple[Any, ...]]) -> str:
    """What is wrong with the output; empty if nothing is."""
    if [row[POSITION] for row in found] != list(range(1, len(found) + 1)):
        return "positions are not 1, 2, 3, …"
    rows = [(row[EVENT_TIME], row["k"], row["s"], row["n"]) for row in found]
    wanted = [row[:4] for row in expected]
    if rows != wanted:
        first = next(
            (n for n, pair in enumerate(zip(rows, wanted, strict=False)) if pair[0] != pair[1]),
            None,
        )
        what = f"{len(rows)} results instead of {len(wanted)}"
        return what if first is None else f"{what}; {rows[first]} instead of {wanted[first]}"
    means = np.array([row["a"] for row in found]) - np.array([row[4] for row in expected])
    return "" if np.abs(means).max() < 1e-9 else "a mean is off by more than 1e-9"
