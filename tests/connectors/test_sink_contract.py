"""What `Sink` promises, for each of them."""

from __future__ import annotations

import json
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from anabranch.connectors import SINKS
from anabranch.errors import ConfigError
from tests.connectors.writing import COLUMNS, numbered, schema_of, sink

pytestmark = pytest.mark.spark


class Jsonl:
    name, options = "jsonl", {"path": "out.jsonl"}

    def read(self, base, capsys):
        file = base / "out.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Csv:
    name, options = "csv", {"path": "out.csv"}

    def read(self, base, capsys):
        file = base / "out.csv"
        return csv.read_csv(file).to_pylist() if file.exists() else []


class Parquet:
    name, options = "parquet", {"path": "out", "rows_per_file": 5}

    def read(self, base, capsys):
        files = sorted((base / "out").glob("part-*.parquet"))
        return [row for file in files for row in parquet.read_table(file).to_pylist()]


class Spark:
    name, options = "spark", {"format": "parquet", "path": "out", "mode": "overwrite"}

    def read(self, base, capsys):
        if not (base / "out").exists():
            return []
        return sorted(parquet.read_table(base / "out").to_pylist(), key=lambda row: row["_pos"])


class Console:
    name, options = "console", {}

    def read(self, base, capsys):
        rows = []
        for line in capsys.readouterr().out.splitlines():
            values = dict(part.split("=") for part in line.split("  ")[2].split())
            a = int(values["a"])
            rows.append({"a": a, "s": values["s"], "_pos": a, "_ts": 1000 * a})
        return rows


class Postgres:
    name = "postgres"

    def __init__(self):
        self.options = {}

    def start(self, request):
        self._server = request.getfixturevalue("postgres")
        self._table = f"t_{uuid4().hex}"
        self.options = {"url": self._server.url, "table": self._table, "mode": "replace"}

    def read(self, base, capsys):
        found = self._server.execute(f"SELECT a, s, _pos, _ts FROM {self._table} ORDER BY _pos")
        return [dict(zip(("a", "s", "_pos", "_ts"), row, strict=True)) for row in found]


class Kafka:
    name = "kafka"
    keeps = True
    """What an earlier run has written."""

    def __init__(self):
        self.options = {}

    def start(self, request):
        self._broker = request.getfixturevalue("kafka")
        self._topic = self._broker.topic()
        self.options = {"servers": self._broker.servers, "topic": self._topic}

    def read(self, base, capsys):
        return [json.loads(record.value()) for record in self._broker.records(self._topic)]


KINDS = [Jsonl(), Csv(), Parquet(), Spark(), Console(), Postgres(), Kafka()]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    if hasattr(request.param, "start"):
        request.param.start(request)
    return request.param


@pytest.fixture
def made(kind, tmp_path, spark):
    return sink(kind.name, tmp_path, spark=lambda: spark, **kind.options)


def rows(first, count):
    return numbered(first, count).to_pylist()


def test_every_sink_is_under_contract():
    assert {kind.name for kind in KINDS} == {*SINKS}


def test_nothing_is_created_before_open(made, tmp_path):
    assert list(tmp_path.iterdir()) == []


def test_rows_in_order(kind, made, tmp_path, capsys):
    made.open()
    made.write(numbered(1, 3))
    made.write(numbered(4, 0))
    made.write(numbered(4, 20))
    made.close()
    assert kind.read(tmp_path, capsys) == rows(1, 23)


def test_chunked_and_sliced_tables(kind, made, tmp_path, capsys):
    made.open()
    made.write(pa.concat_tables([numbered(1, 3), numbered(4, 7)]).slice(1, 8))
    made.close()
    assert kind.read(tmp_path, capsys) == rows(2, 8)


def test_close_is_idempotent_and_allowed_before_open(kind, made, tmp_path, capsys):
    made.close()
    made.open()
    made.write(numbered(1, 1))
    made.close()
    made.close()
    assert kind.read(tmp_path, capsys) == rows(1, 1)


def test_open_begins_anew(kind, made, tmp_path, spark, capsys):
    made.open()
    made.write(numbered(1, 12))
    made.close()
    capsys.readouterr()
    again = sink(kind.name, tmp_path, spark=lambda: spark, **kind.options)
    again.open()
    again.write(numbered(1, 2))
    again.close()
    before = rows(1, 12) if hasattr(kind, "keeps") else []
    assert kind.read(tmp_path, capsys) == before + rows(1, 2)


def test_a_table_of_its_schema_only(made):
    assert numbered(1, 1).schema == schema_of(COLUMNS)


def test_unknown_options(kind, tmp_path, spark):
    if kind.name == "spark":
        pytest.skip("they go on to Spark")
    with pytest.raises(ConfigError, match="has no option 'colour'"):
        sink(kind.name, tmp_path, spark=lambda: spark, **kind.options, colour="red")
