"""Late tuples as a stream: the same ones that a batch finds, whatever is read again."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.stage import inputs
from anabranch.stage.late import LateTuples
from tests.stage.test_work import COLUMNS, stage_of

COLUMNS_OF_LATE = COLUMNS.append(pa.field("event_time", pa.int64()))
LATENESS = 300


@pytest.mark.parametrize("by_file", [False, True])
def test_late_tuples_are_those_that_a_batch_finds(
    tmp_path: Path, by_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "BYTES", 700)
    draw = random.Random(3)
    expected, newest = [], -(2**62)
    for number in range(3):
        newest = -(2**62) if by_file else newest
        lines = ["ts,k,v"]
        for row in range(200):
            ts = (row if by_file else number * 200 + row) * 100 - draw.choice([0, 0, 200, 500])
            lines.append(f"{ts},k{row % 3},{row}")
            if ts < newest - LATENESS:
                expected.append((f"k{row % 3}", row, ts))
            newest = max(newest, ts)
        (tmp_path / f"{number}.csv").write_text("\n".join(lines) + "\n")
    stage = stage_of(tmp_path, 1000, LATENESS).model_copy(update={"by_file": by_file})
    late = LateTuples(stage, COLUMNS, COLUMNS_OF_LATE, threading.Event())
    tables = list(late.read_from(late.start_cursor()))
    found = pa.concat_tables(table for table, _ in tables)
    rows = [tuple(row.values())[:3] for row in found.to_pylist()]
    assert sorted(rows) == sorted(expected)
    assert len(rows) > 20
    times = found.column("_ts").to_pylist()
    assert times == sorted(times)
    cursors = [late.start_cursor(), *(cursor for _, cursor in tables)]
    again = LateTuples(stage, COLUMNS, COLUMNS_OF_LATE, threading.Event())
    for (table, _), (begin, end) in zip(tables, pairwise(cursors), strict=True):
        assert again.reread(begin, end).equals(table)
