"""File sinks that go on after a crash: with what they have, and behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.site.sinks import make_sink
from anabranch.site.sinks.base import SinkContext, written

SCHEMA = pa.schema([("s", pa.string()), ("_pos", pa.int64()), ("_ts", pa.int64())])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    table: dict[str, Any] = {
        "s": [f'line\n"{n}", more' for n in numbers], "_pos": list(numbers),
        "_ts": [n * 10 for n in numbers],
    }  # fmt: skip
    return pa.table(table, schema=SCHEMA)


def a_sink(name: str, folder: Path, *, resume: bool) -> Any:
    options = {"path": "out"}
    context = SinkContext("q", SCHEMA, options, folder, lambda: None, resume=resume)  # type: ignore[arg-type,return-value]
    sink = make_sink(name, context)
    sink.open()
    return sink


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_it_goes_on_behind_the_last_whole_line(name: str, tmp_path: Path) -> None:
    whole = a_sink(name, tmp_path, resume=False)
    assert not written(whole)
    whole.write(rows(1, 5))
    whole.close()
    expected = (tmp_path / "out").read_bytes()

    sink = a_sink(name, tmp_path, resume=False)
    sink.write(rows(1, 3))
    sink.close()
    again = a_sink(name, tmp_path, resume=True)
    assert written(again) == 3
    again.write(rows(4, 2))
    again.close()
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_nothing_written_yet(name: str, tmp_path: Path) -> None:
    fresh = a_sink(name, tmp_path, resume=True)
    assert written(fresh) == 0
    fresh.close()
    again = a_sink(name, tmp_path, resume=True)
    assert written(again) == 0
    again.write(rows(1, 1))
    again.close()
    last = a_sink(name, tmp_path, resume=True)
    assert written(last) == 1
    last.close()


def test_what_is_no_whole_line_is_cut_off(tmp_path: Path) -> None:
    sink = a_sink("jsonl", tmp_path, resume=False)
    sink.write(rows(1, 2))
    sink.close()
    whole = (tmp_path / "out").read_bytes()
    (tmp_path / "out").write_bytes(whole + b'{"s": "half')
    again = a_sink("jsonl", tmp_path, resume=True)
    assert written(again) == 2
    again.close()
    assert (tmp_path / "out").read_bytes() == whole
