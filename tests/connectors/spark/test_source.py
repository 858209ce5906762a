from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import SourceError
from tests.connectors.reading import UTC_MICROS, CheckedSource, message

pytestmark = pytest.mark.spark


@pytest.fixture
def source(tmp_path, spark, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def make(columns, timestamp=None, **options):
        return CheckedSource("spark", tmp_path, options, columns, timestamp, spark=lambda: spark)

    yield make
    assert list(temporary.glob("anabranch-*")) == []
    assert spark.streams.active == []


def folder(tmp_path, name, text) -> Path:
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / "in" / name).write_text(text)
    return tmp_path / "in"


def test_csv_once(tmp_path, source):
    columns = {"a": pa.int32(), "b": pa.string()}
    # Spark takes CSV columns by place: the event time comes after the declared ones.
    folder(tmp_path, "a.csv", "1,x,1970-01-01T00:00:01Z\n2,,5\n")
    made = source(columns, "t", format="csv", once=True, path="in")
    assert made.connector.finite
    assert made.rows() == [
        {"a": 1, "b": "x", "_ts": 1_000_000},
        {"a": 2, "b": None, "_ts": 5},
    ]


def test_json_with_a_declared_event_time(tmp_path, source):
    folder(tmp_path, "a.json", '{"at": "1970-01-01T00:00:01Z"}\n')
    made = source({"at": UTC_MICROS}, "AT", format="json", once=True, path="in")
    assert made.rows() == [{"at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "_ts": 1_000_000}]


def test_parquet_event_time_not_declared_and_large_batches(tmp_path, source):
    (tmp_path / "in").mkdir()
    data = {"a": range(150_000), "at": pa.array(range(150_000), pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table(data), tmp_path / "in" / "x.parquet")
    made = source({"a": pa.int64()}, "at", format="parquet", once=True, path="in")
    tables = list(made.connector.read())
    assert max(table.num_rows for table in tables) <= 65_536
    assert pa.concat_tables(tables)["_ts"].to_pylist() == list(range(150_000))


def test_a_source_with_its_own_schema_until_stopped(source):
    columns = {"value": pa.int32(), "timestamp": UTC_MICROS}
    made = source(
        columns, "timestamp", format="rate", rowsPerSecond=50, numPartitions=1, trigger="200ms"
    )
    assert not made.connector.finite
    values = []
    for table in made.connector.read():
        values += table["value"].to_pylist()
        assert table.schema.names == ["value", "timestamp", "_ts"]
        if len(values) > 60:
            made.stopped.set()
    assert values == list(range(len(values)))


def test_stopping_while_nothing_comes(tmp_path, source):
    folder(tmp_path, "a.csv", "1\n")
    made = source({"a": pa.int64()}, format="csv", path="in")
    tables = made.connector.read()
    assert next(tables)["a"].to_pylist() == [1]
    made.stopped.set()
    began = time.monotonic()
    assert list(tables) == []
    assert time.monotonic() - began < 20


def test_a_failing_query(tmp_path, source):
    folder(tmp_path, "a.csv", "1\nx\n")
    made = source({"a": pa.int64()}, format="csv", once=True, path="in", mode="FAILFAST")
    with pytest.raises(SourceError) as caught:
        made.rows()
    line = caught.value.line()
    assert line.startswith("spark(csv): ")
    assert "\n" not in line
    assert "x" in line


def test_a_missing_event_time(tmp_path, source):
    folder(tmp_path, "a.csv", "1,5\n2,\n")
    made = source({"a": pa.int64()}, "t", format="csv", once=True, path="in")
    assert message(made.rows) == (
        "spark(csv), batch 0, row 2: the event time t is missing. "
        "Check what csv gives, or leave such rows out with its own options."
    )


def test_mistakes_show_before_the_start(tmp_path, source):
    def line(**options):
        return message(lambda: source({"a": pa.int64()}, **options))

    assert line() == (
        "spark() needs the option 'format'. "
        "Write spark(format = …): a streaming source of Spark: 'csv', 'rate', …."
    )
    assert line(format="rate", once="maybe") == "spark() has once = 'maybe'. Give true or false."
    for wrong in ({"format": "no_such_format"}, {"format": "csv", "path": "nowhere"}):
        assert line(**wrong).startswith(f"spark({wrong['format']}): ")
    assert "`a` cannot be resolved" in line(format="rate")


def test_malformed_rows_are_the_format_s_business(tmp_path, source):
    folder(tmp_path, "a.csv", "1\n")
    made = lambda: source({"a": pa.int64()}, format="csv", path="in", on_error="skip")  # noqa: E731
    assert message(made) == (
        "spark() has no option 'on_error'. "
        "Use the format's own, such as mode = 'FAILFAST' or 'DROPMALFORMED'."
    )
