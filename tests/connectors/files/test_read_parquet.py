from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.reading import UTC_MICROS, CheckedSource, message


def parquet(tmp_path, data, columns, timestamp=None, **options):
    pq.write_table(pa.table(data), tmp_path / "in.parquet")
    return CheckedSource("file", tmp_path, {"path": "in.parquet"} | options, columns, timestamp)


def test_a_large_file_comes_in_pieces(tmp_path):
    data = {"a": pa.array(range(300_000)), "s": pa.array(["x"] * 300_000), "ts": range(300_000)}
    source = parquet(tmp_path, data, {"A": pa.int32(), "s": pa.string()}, "ts")
    tables = list(source.connector.read())
    assert max(table.num_rows for table in tables) <= 65_536
    whole = pa.concat_tables(tables)
    assert whole.schema == pa.schema([("A", pa.int32()), ("s", pa.string()), ("_ts", pa.int64())])
    assert whole["A"].to_pylist() == whole["_ts"].to_pylist() == list(range(300_000))


def test_stopping_in_the_middle(tmp_path):
    source = parquet(tmp_path, {"a": pa.array(range(300_000))}, {"a": pa.int64()})
    for _ in source.connector.read():
        source.stopped.set()
        tables = 1
    assert tables == 1


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1_500_000], pa.int64()),
        pa.array([1_500_000_999], pa.timestamp("ns")),
        pa.array([1_500_000], pa.timestamp("us", "Europe/Paris")),
        pa.array([1_500], pa.timestamp("ms", "UTC")),
        pa.array(["1970-01-01T00:00:01.5Z"]),
        pa.array(["1500000"]).dictionary_encode(),
    ],
)
def test_event_times(tmp_path, times):
    source = parquet(tmp_path, {"ts": times}, {"ts": UTC_MICROS}, "ts")
    when = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    if not pa.types.is_integer(times.type):
        assert source.rows() == [{"ts": when, "_ts": 1_500_000}]
    assert source.rows()[0]["_ts"] == 1_500_000


def test_values_are_cast_or_malformed(tmp_path):
    data = {"a": pa.array([1.0, 2.5, None, 4.0]), "ts": pa.array([1, 2, 3, None])}
    columns = {"a": pa.int32()}
    source = parquet(tmp_path, data, columns, "ts", on_error="skip")
    assert source.rows() == [{"a": 1, "_ts": 1}, {"a": None, "_ts": 3}]
    assert source.skipped == [2]
    assert message(parquet(tmp_path, data, columns, "ts").rows) == (
        f"{tmp_path}/in.parquet, row 2: a is 2.5, which is no INT. "
        "Fix the row or set on_error = 'skip'."
    )
    data["a"] = pa.array([1, 2, 3, 4])
    assert "row 4: the event time ts is missing" in message(
        parquet(tmp_path, data, columns, "ts").rows
    )


def test_empty_text_is_no_null(tmp_path):
    source = parquet(tmp_path, {"s": ["", None]}, {"s": pa.string()})
    assert source.rows() == [{"s": ""}, {"s": None}]


def test_types_that_never_fit(tmp_path):
    assert "in.parquet: a is list<element: int64>, which cannot become BIGINT" in message(
        lambda: parquet(tmp_path, {"a": [[1]]}, {"a": pa.int64()})
    )
    assert "in.parquet: ts is double, which cannot become event time" in message(
        lambda: parquet(tmp_path, {"a": [1], "ts": [0.5]}, {"a": pa.int64()}, "ts")
    )


def test_missing_column(tmp_path):
    assert "in.parquet: the column a is missing; there is b" in message(
        lambda: parquet(tmp_path, {"b": [1]}, {"a": pa.int64()})
    )


def test_no_parquet(tmp_path):
    (tmp_path / "in.parquet").write_text("a,b\n1,2\n")
    made = partial(CheckedSource, "file", tmp_path, {"path": "in.parquet"}, {"a": pa.int64()})
    assert message(made) == (
        f"{tmp_path}/in.parquet: not a Parquet file. Check the path and the format option."
    )


def test_damaged_parquet(tmp_path):
    parquet(tmp_path, {"a": pa.array(range(10_000))}, {"a": pa.int64()})
    content = bytearray((tmp_path / "in.parquet").read_bytes())
    content[20:2000] = bytes(1980)
    (tmp_path / "in.parquet").write_bytes(content)
    source = CheckedSource("file", tmp_path, {"path": "in.parquet"}, {"a": pa.int64()})
    assert message(source.rows).startswith(f"{tmp_path}/in.parquet: ")
