"""Sources that can be read again from any cursor, as `replayable` promises. Kafka's own tests go
further, on a broker."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.connectors.files import read_csv, read_json, read_parquet
from tests.connectors.reading import CheckedSource, message

COLUMNS = {"a": pa.int32(), "s": pa.string()}


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch):
    monkeypatch.setattr(read_csv, "BLOCK_ROWS", 7)
    monkeypatch.setattr(read_json, "BLOCK_BYTES", 200)
    monkeypatch.setattr(read_parquet, "MAX_ROWS", 7)


def csv_line(chance, number):
    if chance.random() < 0.1:
        return "nonsense\r\n"
    text = chance.choice(["plain", '"two\nlines"', '"a\r\nb"', "é–µ", '"say ""hi"""'])
    end = chance.choice(["\n", "\r\n", "\r"])
    return f"{number},{text},{number * 1000}{end}"


def csv_file(folder, chance, name):
    bom = chance.choice(["", "\ufeff"])
    lines = "".join(csv_line(chance, number) for number in range(chance.randrange(60)))
    (folder / f"{name}.csv").write_bytes(f"{bom}a,s,ts\n{lines}".encode() + b"1,\xff,5\n")


def json_line(chance, number):
    if chance.random() < 0.1:
        return chance.choice(["nonsense", "", "[]"])
    return json.dumps({"a": number, "s": f"r\u2028é{number}", "ts": number}, ensure_ascii=False)


def json_file(folder, chance, name):
    lines = "\n".join(json_line(chance, number) for number in range(chance.randrange(60)))
    (folder / f"{name}.jsonl").write_text(chance.choice(["", "\ufeff"]) + lines)


def parquet_file(folder, chance, name):
    rows = range(chance.randrange(60))
    data = {"a": [*rows], "s": [f"r{n}" for n in rows], "ts": [*rows]}
    groups = chance.choice([5, 20, 100])
    pq.write_table(pa.table(data), folder / f"{name}.parquet", row_group_size=groups)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("write", [csv_file, json_file, parquet_file])
def test_files(tmp_path, write, seed):
    chance = random.Random(seed)
    for name in ("one", "two", "three"):
        write(tmp_path, chance, name)

    def make():
        return CheckedSource("file", tmp_path, {"path": ".", "on_error": "skip"}, COLUMNS, "ts")

    check(make, [*make().connector.read()])


def check(make, expected):
    source = make()
    connector = source.connector
    assert connector.replayable
    begin = connector.start_cursor()
    first = [*connector.read_from(begin)]
    assert [table.to_pylist() for table, _ in first] == [table.to_pylist() for table in expected]
    counted = sum(source.skipped)
    cursors = [begin]
    for table, end in first:
        begin, end = json.loads(json.dumps([cursors[-1], end]))
        assert make().connector.reread(begin, end).to_pylist() == table.to_pylist()
        cursors.append(end)
    assert sum(source.skipped) == counted
    for done, cursor in enumerate(cursors):
        rest = [*make().connector.read_from(cursor)]
        assert [one.to_pylist() for one, _ in rest] == [one.to_pylist() for one, _ in first[done:]]
        assert [behind for _, behind in rest] == cursors[done + 1 :]


def test_a_file_that_grew_is_reread_as_it_was(tmp_path):
    for name, lines in (("x.csv", "a,s,ts\n1,x,1\n2,y,2\n"), ("x.jsonl", '{"a": 1, "ts": 1}\n')):
        file = tmp_path / name
        file.write_text(lines)
        connector = CheckedSource("file", tmp_path, {"path": name}, COLUMNS, "ts").connector
        begin = connector.start_cursor()
        ((table, end),) = connector.read_from(begin)
        with file.open("a") as more:
            more.write(lines.splitlines()[-1] + "\n")
        assert connector.reread(begin, end).equals(table)
        assert sum(table.num_rows for table, _ in connector.read_from(end)) == 1


def test_a_file_that_is_another(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("a,s,ts\n1,x,1\n2,y,2\n")
    connector = CheckedSource("file", tmp_path, {"path": "x.csv"}, COLUMNS, "ts").connector
    begin = connector.start_cursor()
    ((_, end),) = connector.read_from(begin)
    file.write_text("a,s,ts\n1,x,1\n")
    complaint = (
        f"{file}: the file is not the one that was read. "
        "Put it back, or drop the stream and create it again."
    )
    assert message(lambda: connector.reread(begin, end)) == complaint
    elsewhere = {"file": "/gone.csv", "at": None}
    assert "the file is not the one" in message(lambda: [*connector.read_from(elsewhere)])


@pytest.mark.spark
@pytest.mark.parametrize("tps", [2.5, 700])
def test_rate(tmp_path, spark, tps):
    rows = 6 if tps < 10 else 1000
    options = {"tps": tps, "rows": rows, "a": "value", "s": "'r' || rand(7)"}

    def make():
        return CheckedSource("rate", tmp_path, options, COLUMNS, spark=lambda: spark)

    connector = make().connector
    begin = connector.start_cursor()
    first = [*connector.read_from(begin)]
    whole = pa.concat_tables(table for table, _ in first)
    assert whole.column("a").to_pylist() == [*range(rows)]
    for table, end in first[:: max(len(first) // 5, 1)]:
        begin = end | {"next": end["next"] - table.num_rows}
        assert make().connector.reread(begin, end).equals(table)
    begin = first[0][1]
    rest = pa.concat_tables(table for table, _ in make().connector.read_from(begin))
    assert rest.to_pylist() == whole.to_pylist()[begin["next"] :]
    assert make().connector.reread(begin, first[-1][1]).equals(rest.combine_chunks())
