from __future__ import annotations

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from anabranch.errors import ConfigError
from tests.connectors.reading import UTC_MICROS, CheckedSource, message

pytestmark = pytest.mark.spark
START = 1_700_000_000_000_000


@pytest.fixture
def rate(tmp_path, spark):
    def make(columns, timestamp=None, **options):
        return CheckedSource("rate", tmp_path, options, columns, timestamp, spark=lambda: spark)

    return make


def test_exact_values(rate):
    columns = {
        "Value": pa.int64(),
        "ts": pa.int64(),
        "Temp": pa.float64(),
        "room": pa.string(),
        "flag": pa.bool_(),
        "n": pa.int32(),
        "at": UTC_MICROS,
    }
    source = rate(
        columns,
        tps=2000,
        rows=1000,
        start=START,
        temp="20 + value % 10 / 2",
        room="'r' || value",
        flag=True,
        n=7,
        at="timestamp_micros(ts)",
    )
    assert source.connector.finite
    rows = source.rows()
    assert len(rows) == 1000
    for i, row in enumerate(rows):
        ts = START + i * 500
        at = datetime.fromtimestamp(ts // 1_000_000, UTC).replace(microsecond=ts % 1_000_000)
        assert row == {
            "Value": i,
            "ts": ts,
            "Temp": 20 + i % 10 / 2,
            "room": f"r{i}",
            "flag": True,
            "n": 7,
            "at": at,
            "_ts": ts,
        }
    assert source.table().schema == pa.schema([*columns.items(), ("_ts", pa.int64())])


def test_event_times_do_not_drift(rate):
    source = rate({"value": pa.int64()}, tps=3000, rows=9001, start="1970-01-01T00:00:00Z")
    times = source.table()["_ts"].to_pylist()
    assert times == [i * 1_000_000 // 3000 for i in range(9001)]


def test_pacing_by_the_clock(rate):
    source = rate({"value": pa.int64()}, rate="100", rows=101)
    seen = []
    for table in source.connector.read():
        seen += [(time.monotonic(), time.time() * 1e6 - ts) for ts in table["_ts"].to_pylist()]
    took = seen[-1][0] - seen[0][0]
    assert 0.5 < took < 5
    # Born now, and never before their time.
    assert all(-1_000 < lag < 3_000_000 for _, lag in seen)


def test_tuples_of_an_interval_come_together(rate):
    source = rate({"value": pa.int64()}, tps=1000, every="50ms", rows=2025)
    sizes, late = [], []
    for table in source.connector.read():
        sizes.append(len(table))
        late.append(time.time() * 1e6 - table["_ts"][0].as_py())
    assert sum(sizes) == 2025
    assert all(size % 50 == 0 for size in sizes[:-1])  # several at once if the machine was busy
    assert sizes[-1] % 50 == 25
    assert min(late) >= 50_000  # not before the interval's end


def test_fractions_of_a_tuple_per_second(rate):
    source = rate({"value": pa.int64()}, tps="0.5", start=0)
    tables = source.connector.read()
    began = time.monotonic()
    assert next(tables).to_pylist() == [{"value": 0, "_ts": 0}]
    assert next(tables).to_pylist() == [{"value": 1, "_ts": 2_000_000}]
    assert time.monotonic() - began > 1.5
    source.stopped.set()
    assert list(tables) == []


def test_stopping_an_endless_one(rate):
    source = rate({"value": pa.int64()}, tps=0.01)
    assert not source.connector.finite
    tables = source.connector.read()
    next(tables)
    source.stopped.set()
    began = time.monotonic()
    assert list(tables) == []
    assert time.monotonic() - began < 5


def test_high_rates_in_small_tables(rate):
    source = rate({"value": pa.int64()}, tps=200_000, rows=150_000, start=0)
    tables = list(source.connector.read())
    assert max(table.num_rows for table in tables) <= 100_000
    assert pa.concat_tables(tables)["value"].to_pylist() == list(range(150_000))


def test_event_time_from_a_column(rate):
    options = {"tps": 1000, "rows": 2, "start": 0, "at": "ts - 5"}
    rows = rate({"at": pa.int64()}, "at", **options).rows()
    assert rows == [{"at": -5, "_ts": -5}, {"at": 995, "_ts": 995}]
    options["at"] = "timestamp_micros(ts)"
    assert [row["_ts"] for row in rate({"at": UTC_MICROS}, "AT", **options).rows()] == [0, 1000]
    assert message(lambda: rate({"value": pa.int64()}, "when", tps=1)) == (
        "rate() has no column when to take event time from. "
        "Write TIMESTAMP ts or declare the column."
    )


def test_ts_as_a_timestamp_column(rate):
    rows = rate({"ts": UTC_MICROS}, "ts", tps=1000, rows=1, start=1_000_000).rows()
    assert rows == [{"ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "_ts": 1_000_000}]


def test_a_column_goes_before_an_option_of_its_name(rate):
    rows = rate({"rate": pa.int64()}, tps=1000, rows=2, rate="value * 2").rows()
    assert [row["rate"] for row in rows] == [0, 2]


def test_options(rate):
    def line(columns=("value",), **options):
        return message(lambda: rate({name: pa.int64() for name in columns}, **options))

    assert line() == "rate() needs the option 'tps'. Write rate(tps = …): tuples per second."
    assert line(tps=0) == "rate() has tps = 0. Give a number above 0."
    assert line(tps=1, start="soon") == (
        "rate() has start = 'soon'. "
        "Give µs since the epoch or a time such as '2026-01-31T12:00:00Z'."
    )
    assert line(["Temp"], tps=1, tmp="value") == "rate() has no option 'tmp'. Did you mean 'Temp'?"
    assert line(["Temp"], tps=1) == (
        "rate() has no expression for the column Temp. Add Temp = '<Spark SQL over value and ts>'."
    )


def test_wrong_expressions(rate):
    def line(type, expression):
        return message(lambda: rate({"x": type}, tps=1, x=expression))

    unknown = line(pa.string(), "kitchen")
    assert unknown.startswith("rate() cannot make x STRING from kitchen: ")
    assert "`kitchen` cannot be resolved" in unknown
    assert unknown.endswith("Use value and ts; text needs quotes of its own, as in \"'kitchen'\".")
    assert "\n" not in unknown
    assert "SQLSTATE" not in unknown
    assert line(pa.int64(), "value +").startswith("rate() cannot make x BIGINT from value +: ")
    assert line(pa.date32(), "value").startswith("rate() cannot make x DATE from value: ")


def test_expressions_that_fail_when_run(rate):
    source = rate({"x": pa.int64()}, tps=10, rows=1, x="'abc'")
    line = message(source.rows)
    assert line.startswith("rate() cannot make its tuples: The value 'abc' of the type")
    assert "\n" not in line


@pytest.mark.parametrize("expression", ["sum(value)", "explode(array(1, 2))"])
def test_one_row_per_tuple(rate, expression):
    with pytest.raises(ConfigError, match=r"rate\(\) cannot make x BIGINT"):
        rate({"x": pa.int64()}, tps=10, rows=5, x=expression)
