"""Windows out of partials in SQL, against merging every slice of every window one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from anabranch.stage import partials
from anabranch.stage.partials import PartialsSql
from anabranch.window.panes import Grid
from tests.stage.test_service import stage

KEYS = (None, "a", "b", "ü")


def some_partials(draw: random.Random, low: int, high: int) -> list[tuple[Any, ...]]:
    """Of slices with gaps between them, several of one slice and key among them."""
    found = []
    for _ in range(draw.randrange(1, 120)):
        value = draw.choice([None, draw.randrange(-99, 99)])
        count = 0 if value is None else draw.randrange(1, 5)
        average = (None, 0) if value is None else (float(value), count)
        row = (draw.randrange(low, high), draw.choice(KEYS), value, count, value, value, *average)
        found.append(row)
    return found


def one_by_one(
    rows: list[tuple[Any, ...]], first: int, last: int, grid: Grid
) -> list[tuple[Any, ...]]:
    def added(values: Sequence[int | None]) -> int | None:
        return (
            sum(one for one in values if one is not None)
            if any(one is not None for one in values)
            else None
        )

    found = []
    for window in range(first, last + 1):
        low = grid.first_pane(window)
        inside = [row for row in rows if low <= row[0] < low + grid.span]
        for key in sorted({row[1] for row in inside}, key=lambda k: (k is not None, k or "")):
            columns = list(zip(*(row[2:] for row in inside if row[1] == key), strict=True))
            low_high = [one for one in columns[2] if one is not None]
            total, times = added(columns[4]), sum(columns[5])
            found.append(
                (
                    window,
                    key,
                    added(columns[0]),
                    sum(columns[1]),
                    min(low_high, default=None),
                    max(low_high, default=None),
                    None if total is None else total / times,
                )
            )
    return found


@pytest.mark.parametrize("long", [2, 16])
@pytest.mark.parametrize(
    ("width", "slide"), [(100, 100), (50, 80), (100, 50), (90, 30), (100, 30), (600, 10), (605, 10)]
)
def test_windows_are_merged_of_what_lies_in_them(
    monkeypatch: pytest.MonkeyPatch, width: int, slide: int, long: int
) -> None:
    monkeypatch.setattr(partials, "LONG", long)
    grid, sql = Grid(width, slide), PartialsSql(stage(width, slide))
    names = ["_slice", "_k0", *sql.columns]
    types = [pa.int64(), pa.string(), *[pa.int64()] * 4, pa.float64(), pa.int64()]
    for seed in range(12):
        draw = random.Random(seed)
        low = draw.randrange(-300, 100)
        rows = some_partials(draw, low, low + draw.randrange(1, 300))
        first = grid.first_window(low) + draw.randrange(-3, 30)
        last = first + draw.randrange(200)
        columns = zip(*rows, strict=True)
        table = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)
        with duckdb.connect() as db:
            db.register("made", table)
            query = sql.windows("made", first, last, grid.stride, grid.span)
            assert db.sql(query).fetchall() == one_by_one(rows, first, last, grid), f"seed {seed}"


def test_a_long_window_is_merged_of_few_pieces() -> None:
    """As many slices again make each of the windows no dearer."""
    sql = PartialsSql(stage(600, 10))
    with duckdb.connect() as db:
        db.execute(
            "CREATE TABLE made AS SELECT s._slice, k::VARCHAR AS _k0, 1 AS _p0, 1 AS _p1, 1 AS _p2,"
            " 1 AS _p3, 1.0 AS _p4, 1 AS _p5"
            " FROM (SELECT range AS _slice FROM range(1200)) s, (SELECT range AS k FROM range(5))"
        )
        for span in (60, 600):
            parts = sql._parts("made", 0, 599, 1, span)
            ((count,),) = db.sql(f"SELECT count(*) FROM ({parts})").fetchall()
            assert 600 * 5 < count <= 2 * 600 * 5
