"""File sinks that go on after a crash: with what they have, and behind it."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from anabranch.connectors import make_sink
from anabranch.connectors.files import line_file
from anabranch.connectors.sink import SinkContext

SCHEMA = pa.schema([("s", pa.string()), ("_pos", pa.int64()), ("_ts", pa.int64())])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    table: dict[str, Any] = {
        "s": [f'line\n"{n}", more' for n in numbers],
        "_pos": list(numbers),
        "_ts": [n * 10 for n in numbers],
    }
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
    assert not whole.written()
    whole.write(rows(1, 5))
    whole.close()
    expected = (tmp_path / "out").read_bytes()

    sink = a_sink(name, tmp_path, resume=False)
    sink.write(rows(1, 3))
    sink.close()
    again = a_sink(name, tmp_path, resume=True)
    assert again.written() == 3
    again.write(rows(4, 2))
    again.close()
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_nothing_written_yet(name: str, tmp_path: Path) -> None:
    fresh = a_sink(name, tmp_path, resume=True)
    assert fresh.written() == 0
    fresh.close()
    again = a_sink(name, tmp_path, resume=True)
    assert again.written() == 0
    again.write(rows(1, 1))
    again.close()
    last = a_sink(name, tmp_path, resume=True)
    assert last.written() == 1
    last.close()


@pytest.mark.parametrize("piece", [7, 1 << 20])
@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_wherever_it_was_cut_it_goes_on_behind_the_last_whole_line(
    name: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_file, "_PIECE_BYTES", piece)
    file = tmp_path / "out"
    sink = a_sink(name, tmp_path, resume=False)
    ends = [0, file.stat().st_size]
    for number in (1, 2, 3):
        sink.write(rows(number, 1))
        ends.append(file.stat().st_size)
    sink.close()
    whole = file.read_bytes()
    lines = [end for end in dict.fromkeys(ends) if end]  # jsonl has no header
    first = len(lines) - 3
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        again = a_sink(name, tmp_path, resume=True)
        have = max(0, sum(end <= length for end in lines) - first)
        assert again.written() == have, length
        again.write(rows(have + 1, 3 - have))
        again.close()
        assert file.read_bytes() == whole, length


def test_no_part_of_a_csv_line_looks_like_a_whole_one(tmp_path: Path) -> None:
    sink = a_sink("csv", tmp_path, resume=False)
    before = (tmp_path / "out").stat().st_size
    sink.write(rows(1, 1))
    sink.close()
    line = (tmp_path / "out").read_text()[before:]
    assert next(csv.reader([line], strict=True))[-2:] == ["1", "10"]
    for length in range(1, len(line) - 1):  # the newline is nobody's loss
        try:
            fields = [row for row in csv.reader(io.StringIO(line[:length]), strict=True) if row]
        except csv.Error:
            continue
        assert len(fields[-1]) < 3 or fields[-1][-1] == "", line[:length]


def keyed(first: int, count: int) -> pa.Table:
    """With a column by which there are folders."""
    table = rows(first, count)
    return table.add_column(
        0, "k", pa.array([n % 3 for n in range(first, first + count)], pa.int64())
    )


def a_parquet(folder: Path, *, resume: bool, **options: Any) -> Any:
    given = {"path": "out"} | options
    schema = keyed(1, 0).schema
    context = SinkContext("q", schema, given, folder, lambda: None, resume=resume)  # type: ignore[arg-type,return-value]
    sink = make_sink("parquet", context)
    sink.open()
    return sink


def parquet_rows(folder: Path) -> list[int]:
    files = sorted(folder.rglob("part-*.parquet"))
    return sorted(p for file in files for p in parquet.read_table(file)["_pos"].to_pylist())


@pytest.mark.parametrize("folders", [False, True])
def test_parquet_acknowledges_what_is_whole_and_goes_on_behind_it(
    folders: bool, tmp_path: Path
) -> None:
    more = {"partition_by": "k"} if folders else {}
    sink = a_parquet(tmp_path, resume=False, every="0s", **more)
    sink.write(keyed(1, 5))
    assert sink.settle() == 5
    assert parquet_rows(tmp_path) == [1, 2, 3, 4, 5]
    sink._every_s = 1e9
    sink.write(keyed(6, 5))
    assert sink.settle() == 5
    again = a_parquet(tmp_path, resume=True, **more)
    assert again.written() == 5
    again.write(keyed(6, 2))
    again.close()
    assert parquet_rows(tmp_path) == [*range(1, 8)]
    assert again.settle() == 7


def test_full_parquet_files_are_acknowledged_at_once(tmp_path: Path) -> None:
    sink = a_parquet(tmp_path, resume=False, rows_per_file=5)
    sink.write(keyed(1, 12))
    assert sink.settle() == 10
    assert a_parquet(tmp_path, resume=True).written() == 10


class Killed(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("calls", range(1, 10))
def test_parquet_files_of_several_folders_appear_together(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after any step: what goes on finds all of them, or none."""
    sink = a_parquet(tmp_path, resume=False, every="0s", partition_by="k")
    sink.write(keyed(1, 2))
    assert sink.settle() == 2
    sink.write(keyed(3, 3))
    steps = 0
    rename = Path.rename

    def killing(path: Path, target: Path) -> Path:
        nonlocal steps
        steps += 1
        if steps == calls:
            raise Killed
        done = rename(path, target)
        steps += 1
        if steps == calls:
            raise Killed
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killing)
        with suppress(Killed):
            sink.settle()
    again = a_parquet(tmp_path, resume=True, partition_by="k")
    have = again.written()
    assert have == (2 if calls == 1 else 5)
    assert parquet_rows(tmp_path) == [*range(1, have + 1)]
    again.write(keyed(have + 1, 6 - have))
    again.close()
    assert parquet_rows(tmp_path) == [*range(1, 7)]


WRITER = """
import pyarrow as pa
from pathlib import Path
from tests.connectors.files.test_resume import a_sink, rows
sink = a_sink({name!r}, Path({folder!r}), resume=False)
table = rows(1, 400_000)
print("writing", flush=True)
sink.write(table)
"""


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_killed_while_it_writes(name: str, tmp_path: Path) -> None:
    """The file may end in the middle of a line then; what is whole of it is what goes on."""
    file = tmp_path / "out"
    script = WRITER.format(name=name, folder=str(tmp_path))
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    with child:
        assert child.stdout
        child.stdout.readline()
        until = time.monotonic() + 60
        while file.stat().st_size < 1_000_000 and time.monotonic() < until:
            pass
        child.kill()
    left = file.read_bytes()
    again = a_sink(name, tmp_path, resume=True)
    have = again.written()
    assert have
    again.close()
    assert left.startswith(file.read_bytes())
    assert len(left) - file.stat().st_size < 100
    whole = a_sink(name, tmp_path, resume=False)
    whole.write(rows(1, have))
    whole.close()
    assert left.startswith(file.read_bytes())
