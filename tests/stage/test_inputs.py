"""Sources read in parts: the parts together are what the source gives."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.connectors import make_source
from anabranch.connectors.source import SourceContext
from anabranch.errors import SourceError
from anabranch.stage import inputs
from anabranch.stage.inputs import PartitionedInput, Share, make_input
from anabranch.stage.offsets import OffsetRange

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "ROWS", 20)
    monkeypatch.setattr(inputs, "BYTES", 200)


def context(folder: Path, **options: Any) -> SourceContext:
    def no_spark() -> Any:
        raise AssertionError

    return SourceContext("s", SCHEMA, "ts", {"path": str(folder), **options}, folder, no_spark)


def parts(input: PartitionedInput) -> list[pa.Table]:
    (end,) = input.ends().values()
    left, found = OffsetRange("0", 0, end), []
    while True:
        piece = input.cut(left)
        assert piece.begin == left.begin
        found.append(input.read(piece))
        if piece.end == end:
            return found
        left = OffsetRange("0", piece.end, end)


def whole(source_context: SourceContext) -> pa.Table:
    return pa.concat_tables(make_source("file", source_context).read())


def rows(draw: random.Random, count: int, keys: list[str | None]) -> list[dict[str, Any]]:
    return [
        {
            "key": draw.choice(keys),
            "n": draw.choice([None, draw.randrange(-(10**9), 10**9)]),
            "x": draw.choice([None, 0.5, -1e300, 7.25]),
            "ts": draw.randrange(10**15),
        }
        for _ in range(count)
    ]


def csv_lines(found: list[dict[str, Any]], draw: random.Random, end: str) -> str:
    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str) and set(value) & set(',"\n'):
            return '"' + value.replace('"', '""') + '"'
        return draw.choice(["", "", " "]) + str(value) if isinstance(value, int) else str(value)

    lines = ["ts,other,key,n,x"]
    lines += [
        f"{row['ts']},-,{text(row['key'])},{text(row['n'])},{text(row['x'])}" for row in found
    ]
    return end.join(lines) + draw.choice(["", end])


PLAIN: list[str | None] = ["a", "Ünicode", None, "two words", "0x12"]
STRANGE: list[str | None] = [*PLAIN, 'quo"ted', "line\nbreak", "comma,"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("keys", [PLAIN, STRANGE], ids=["plain", "strange"])
def test_csv(tmp_path: Path, seed: int, keys: list[str | None]) -> None:
    draw = random.Random(seed)
    for number in range(3):
        found = rows(draw, draw.randrange(1, 60), keys)
        text = csv_lines(found, draw, draw.choice(["\n", "\r\n"]))
        (tmp_path / f"{number}.csv").write_bytes(text.encode())
    given = context(tmp_path)
    assert pa.concat_tables(parts(make_input("file", given, Share()))).equals(whole(given))


def test_csv_with_signs_and_dates(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,key,n,x\n2026-01-31T12:00:00Z,a,+5,1\n1970-01-01,b,6,+2\n")
    given = context(tmp_path)
    assert pa.concat_tables(parts(make_input("file", given, Share()))).equals(whole(given))


@pytest.mark.parametrize("line", ["0x10,a,1,1", "1,a,five,1", "1,a,5", ",a,5,1"])
def test_malformed_csv_says_where(tmp_path: Path, line: str) -> None:
    good = "".join(f"{n},a,{n},1\n" for n in range(30))
    (tmp_path / "a.csv").write_text(f"ts,key,n,x\n{good}{line}\n{good}")
    with pytest.raises(SourceError) as told:
        parts(make_input("file", context(tmp_path), Share()))
    assert told.value.place == f"{tmp_path / 'a.csv'}:32"
    given = context(tmp_path, on_error="skip")
    assert pa.concat_tables(parts(make_input("file", given, Share()))).equals(whole(given))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("key", ["k" * 200, '"' + "k\n" * 100 + '"', 'k"' * 100])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_line_is_no_longer_than_the_stream_takes(
    tmp_path: Path, suffix: str, key: str, ending: str
) -> None:
    def line(number: int, key: str) -> str:
        row = {"ts": number, "key": key, "n": number, "x": 1.5}
        return json.dumps(row) if suffix == "jsonl" else f"{number},{key},{number},1.5"

    lines = [line(n, key if n % 9 == 8 else "a") for n in range(60)]
    if suffix == "csv":
        lines.insert(0, "ts,key,n,x")
    ending = ending if suffix == "csv" else "\n"
    (tmp_path / f"a.{suffix}").write_text(ending.join(lines) + ending, newline="")
    for on_error, max_line in (("skip", 100), ("fail", 1000)):
        given = context(tmp_path, max_line=max_line, on_error=on_error)
        found = parts(make_input("file", given, Share()))
        assert len(found) > 3
        assert pa.concat_tables(found).equals(whole(given))
    with pytest.raises(SourceError, match="longer than 100 bytes, the bound that max_line sets"):
        parts(make_input("file", context(tmp_path, max_line=100), Share()))


@pytest.mark.parametrize("seed", range(6))
def test_quotes_that_quote_nothing(tmp_path: Path, seed: int) -> None:
    """One in the middle of a field, one that is never closed: ranges end where records do."""
    draw = random.Random(seed)
    keys = ["a", 'b"c', '"d\ne"', '"f""g"', '5"', '"h"i']
    lines = [f"{n},{draw.choice(keys)},{n},1\n" for n in range(200)]
    (tmp_path / "a.csv").write_text("ts,key,n,x\n" + "".join(lines))
    given = context(tmp_path, on_error="skip")
    found = parts(make_input("file", given, Share()))
    assert len(found) > 3
    assert pa.concat_tables(found).equals(whole(given))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_without_line_breaks_takes_no_memory(tmp_path: Path, suffix: str) -> None:
    with (tmp_path / f"a.{suffix}").open("wb") as file:
        file.write(b"ts,key,n,x\n" if suffix == "csv" else b"")
        file.truncate(1 << 30)  # zeros, which no disk holds
    before = psutil.Process().memory_info().rss
    given = make_input("file", context(tmp_path, max_line="1MB"), Share())
    with pytest.raises(SourceError, match="longer than 1MB"):
        parts(given)
    assert psutil.Process().memory_info().rss - before < 100_000_000


def test_looking_for_the_end_of_a_line_can_be_stopped(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    given = context(tmp_path, on_error="skip")
    input = make_input("file", given, Share())
    looking = threading.Thread(target=input.cut, args=(OffsetRange("0", 0, 1 << 40),), daemon=True)
    looking.start()
    looking.join(0.5)
    assert looking.is_alive()
    given.stopped.set()
    looking.join(60)
    assert not looking.is_alive()


def test_json_and_parquet(tmp_path: Path) -> None:
    draw = random.Random(5)
    found = rows(draw, 90, STRANGE)
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    (tmp_path / "parquet").mkdir()
    schema = pa.schema([*SCHEMA, ("ts", pa.int64())])
    for number in range(3):
        table = pa.Table.from_pylist(found[number * 30 : number * 30 + 30], schema)
        pq.write_table(table, tmp_path / "parquet" / f"{number}.parquet", row_group_size=7)
    for kind in ("json", "parquet"):
        given = context(tmp_path / kind)
        found_parts = parts(make_input("file", given, Share()))
        assert len(found_parts) > 3
        assert pa.concat_tables(found_parts).equals(whole(given))
