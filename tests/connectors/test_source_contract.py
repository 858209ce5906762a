"""What `Source` promises, for each of them."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.connectors import SOURCES
from anabranch.errors import ConfigError
from tests.connectors.reading import CheckedSource

COLUMNS = {"a": pa.int32(), "s": pa.string()}
ROWS = 500


def csv(tmp_path):
    lines = "".join(f"{i},r{i},{i * 1000}\n" for i in range(ROWS))
    (tmp_path / "in.csv").write_text("a,s,ts\n" + lines)
    return "file", {"path": "in.csv"}


def json(tmp_path):
    lines = "".join(f'{{"a": {i}, "s": "r{i}", "ts": {i * 1000}}}\n' for i in range(ROWS))
    (tmp_path / "in.jsonl").write_text(lines)
    return "file", {"path": "in.jsonl"}


def parquet(tmp_path):
    data = {"ts": [i * 1000 for i in range(ROWS)], "s": [f"r{i}" for i in range(ROWS)]}
    pq.write_table(pa.table(data | {"a": range(ROWS)}), tmp_path / "in.parquet")
    return "file", {"path": "in.parquet"}


def rate(tmp_path):
    return "rate", {"tps": 1000, "rows": ROWS, "start": 0, "a": "value", "s": "'r' || value"}


def spark_source(tmp_path):
    (tmp_path / "in").mkdir()
    lines = "".join(f'{{"a": {i}, "s": "r{i}", "ts": {i * 1000}}}\n' for i in range(ROWS))
    (tmp_path / "in" / "x.json").write_text(lines)
    return "spark", {"format": "json", "path": "in", "once": True}


def python(tmp_path):
    body = f"def rows(): return ((i, f'r{{i}}', i * 1000) for i in range({ROWS}))"
    (tmp_path / "feed.py").write_text(body)
    return "python", {"function": "feed:rows"}


BROKERS = []


@pytest.fixture(autouse=True, scope="module")
def _broker(kafka):
    BROKERS.append(kafka)
    yield
    BROKERS.clear()


def topic(tmp_path):
    (broker,) = BROKERS
    name = broker.topic()
    broker.send(name, [f'{{"a": {i}, "s": "r{i}", "ts": {i * 1000}}}' for i in range(ROWS)])
    return "kafka", {"servers": broker.servers, "topic": name, "once": True}


MADE = [csv, json, parquet, rate, spark_source, python, topic]
pytestmark = pytest.mark.spark


@pytest.fixture(params=MADE, ids=lambda made: made.__name__)
def source(request, tmp_path, spark):
    name, options = request.param(tmp_path)
    return CheckedSource(name, tmp_path, options, COLUMNS, "ts", spark=lambda: spark)


def test_every_source_is_under_contract(tmp_path):
    names = set()
    for made in MADE:
        folder = tmp_path / made.__name__
        folder.mkdir()
        names.add(made(folder)[0])
    assert names == {*SOURCES}


def test_schema_values_and_order(source):
    assert source.connector.finite
    tables = list(source.connector.read())
    schema = pa.schema([*COLUMNS.items(), ("_ts", pa.int64())])
    assert {table.schema for table in tables} == {schema}
    assert all(table.num_rows for table in tables)
    assert [row for table in tables for row in table.to_pylist()] == [
        {"a": i, "s": f"r{i}", "_ts": i * 1000} for i in range(ROWS)
    ]
    assert source.skipped == []


def test_reading_again_gives_the_same(source):
    assert source.rows() == source.rows()


def test_stopped_before_and_while_reading(source):
    tables = source.connector.read()
    next(tables)
    source.stopped.set()
    began = time.monotonic()
    assert sum(1 for _ in tables) <= 1
    assert time.monotonic() - began < 20
    assert sum(1 for _ in source.connector.read()) == 0


def test_leaving_early_leaves_nothing_running(source, spark):
    before = {*threading.enumerate()}
    tables = source.connector.read()
    next(tables)
    tables.close()
    end = time.monotonic() + 10
    while started_since(before) and time.monotonic() < end:
        time.sleep(0.01)
    assert started_since(before) == []
    assert spark.streams.active == []


def started_since(before):
    """Without py4j's own threads, which it keeps for the next callback."""
    threads = [thread for thread in threading.enumerate() if thread not in before]
    return [thread for thread in threads if "run" not in thread.name]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_nothing_starts_before_read(made, tmp_path, spark):
    name, options = made(tmp_path)
    before = threading.active_count()
    CheckedSource(name, tmp_path, options, COLUMNS, "ts", spark=lambda: spark)
    assert threading.active_count() <= before
    assert spark.streams.active == []


@pytest.mark.parametrize("name", [*SOURCES])
def test_no_options_at_all(name, tmp_path, spark):
    with pytest.raises(ConfigError):
        CheckedSource(name, tmp_path, {}, COLUMNS, spark=lambda: spark)
