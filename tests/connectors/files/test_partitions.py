"""Sinks that write a folder for each value of a column."""

from __future__ import annotations

import csv
import json
import os
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from anabranch.connectors import Sink
from anabranch.connectors.files import line_file
from anabranch.connectors.files import parquet_sink as parquet_module
from anabranch.errors import SinkError
from tests.connectors.reading import message
from tests.connectors.writing import sink, table_of

COLUMNS = {"day": pa.date32(), "room": pa.string(), "n": pa.int64()}
ROOMS = ["hall", "a/b=c:%", None, "", "é"]
KINDS = ("csv", "jsonl", "parquet")


def rows(first: int, count: int, seed: int = 0) -> pa.Table:
    chance = Random(seed + first)
    days = [date(2026, 1, day) for day in (1, 2, 31)]
    drawn = [(chance.choice(days), chance.choice(ROOMS), n) for n in range(first, first + count)]
    return table_of(COLUMNS, drawn, first)


def found(folder: Path, kind: str) -> dict[str, list[dict[str, Any]]]:
    """The rows in each folder, in the order of its files."""
    read = {"csv": _csv, "jsonl": _jsonl, "parquet": lambda file: pq.ParquetFile(file).read()}[kind]
    result: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.rglob(f"part*.{kind}")):
        where = str(file.parent.relative_to(folder))
        result.setdefault(where, []).extend(read(file).select(["n", "_pos"]).to_pylist())
    return result


def _csv(file: Path) -> pa.Table:
    with file.open(newline="") as lines:
        return _numbers(list(csv.DictReader(lines)))


def _jsonl(file: Path) -> pa.Table:
    return _numbers([json.loads(line) for line in file.read_text().splitlines()])


def _numbers(read: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: [int(row[name]) for row in read] for name in ("n", "_pos")})


def expected(*tables: pa.Table) -> dict[str, list[dict[str, Any]]]:
    names = {
        None: "__HIVE_DEFAULT_PARTITION__",
        "": "__HIVE_DEFAULT_PARTITION__",
        "a/b=c:%": "a%2Fb%3Dc%3A%25",
    }
    result: dict[str, list[dict[str, Any]]] = {}
    for row in pa.concat_tables(tables).to_pylist():
        room = names.get(row["room"], row["room"])
        folder = f"day={row['day']}/room={room}"
        result.setdefault(folder, []).append({"n": row["n"], "_pos": row["_pos"]})
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_for_each_value(tmp_path: Path, kind: str) -> None:
    tables = [rows(1, 40), rows(41, 1), rows(42, 60)]
    made = sink(kind, tmp_path, COLUMNS, path="out", partition_by="day, Room")
    made.open()
    for table in tables:
        made.write(table)
    made.close()
    assert found(tmp_path / "out", kind) == expected(*tables)


def test_others_read_them(tmp_path: Path) -> None:
    table = rows(1, 100).filter(pa.compute.field("room") == "hall")
    made = sink("parquet", tmp_path, COLUMNS, path="out", partition_by="day")
    made.open()
    made.write(table)
    made.close()
    partitioning = ds.partitioning(pa.schema([("day", pa.date32())]), flavor="hive")
    read = ds.dataset(tmp_path / "out", format="parquet", partitioning=partitioning).to_table()
    assert read.select(table.schema.names).sort_by("_pos").equals(table)


@pytest.mark.parametrize("kind", KINDS)
def test_the_folders_of_an_earlier_run_are_replaced(tmp_path: Path, kind: str) -> None:
    for count in (50, 2):
        made = sink(kind, tmp_path, COLUMNS, path="out", partition_by="day,room")
        made.open()
        made.write(rows(1, count))
        made.close()
    assert found(tmp_path / "out", kind) == expected(rows(1, 2))


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("seed", range(25))
def test_killed_anywhere_and_gone_on_with(
    tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a kill leaves of a write, nothing is there twice and nothing is missing."""
    chance = Random(seed)
    steps = chance.randint(1, 60)
    real_add, real_record = line_file.LineFile.add, line_file.LineFolder._record

    def step() -> None:
        nonlocal steps
        steps -= 1
        if steps == 0:
            raise Killed

    def add(self: Any, lines: bytes) -> None:
        step()
        if steps == 1:  # the kill comes in the middle of it
            real_add(self, lines[: len(lines) // 2])
            raise Killed
        real_add(self, lines)

    def record(self: Any, sizes: dict[str, int]) -> None:
        step()
        real_record(self, sizes)

    monkeypatch.setattr(line_file.LineFile, "add", add)
    monkeypatch.setattr(line_file.LineFolder, "_record", record)
    whole = rows(1, 90, seed)
    made, given = _made(kind, tmp_path, resume=False), 0
    while given < 90:
        try:
            count = chance.randint(1, 20)
            made.write(whole.slice(given, count))
            given += count
        except Killed:
            made = _made(kind, tmp_path, resume=True)
            at = made.written()
            assert at is not None
            assert given <= at + 20
            assert at >= given  # what was said to be written stays
            given = at
    made.close()
    assert found(tmp_path / "out", kind) == expected(whole)


def _made(kind: str, folder: Path, *, resume: bool) -> Sink:
    made = sink(kind, folder, COLUMNS, path="out", partition_by="day,room", resume=resume)
    made.open()
    return made


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _made(kind, tmp_path, resume=False)
    made.write(rows(1, 30))
    real, left = os.write, 2

    def full(descriptor: int, data: bytes) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SinkError, match="disk full"):
        made.write(rows(31, 30))
    monkeypatch.undo()
    assert found(tmp_path / "out", kind) == expected(rows(1, 30))
    made.write(rows(31, 30))
    assert found(tmp_path / "out", kind) == expected(rows(1, 30), rows(31, 30))


def test_very_many_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files grow at a time; rows stay in order."""
    monkeypatch.setattr(parquet_module, "_MOST_GROWING", 3)
    columns = {"k": pa.int64(), "n": pa.int64()}
    table = table_of(columns, [(n % 20, n) for n in range(200)])
    made = sink("parquet", tmp_path, columns, path="out", partition_by="k")
    made.open()
    for start in range(0, 200, 50):
        made.write(table.slice(start, 50))
        waiting = [part for parts in made._parts.values() for part in parts]  # type: ignore[attr-defined]
        growing = [part for part in waiting if not part.ended]
        assert len(growing) <= 4
    made.close()
    read = found(tmp_path / "out", "parquet")
    assert {folder: [row["n"] for row in rows] for folder, rows in read.items()} == {
        f"k={k}": list(range(k, 200, 20)) for k in range(20)
    }


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("dya", "csv() has partition_by = 'dya', no column. Did you mean 'day'?"),
        ("x", "csv() has partition_by = 'x', of a type that makes no folder's name. Name a"),
        ("day,day", "csv() has partition_by = 'day,day'. Name each column once"),
        ("_pos", "csv() has partition_by = '_pos', no column. There is day, x"),
    ],
)
def test_mistakes(tmp_path: Path, given: str, complaint: str) -> None:
    columns = {"day": pa.date32(), "x": pa.binary()}
    made = message(lambda: sink("csv", tmp_path, columns, path="out", partition_by=given))
    assert made.startswith(complaint)


def test_a_value_that_is_too_long_for_a_folder(tmp_path: Path) -> None:
    made = sink("csv", tmp_path, COLUMNS, path="out", partition_by="room")
    made.open()
    with pytest.raises(SinkError, match="too long for the name of a folder"):
        made.write(table_of(COLUMNS, [(None, "x" * 300, 1)]))
