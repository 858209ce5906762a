"""What a sink wrote, the file source reads back as it was."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connectors.reading import UTC_MICROS, CheckedSource
from tests.connectors.writing import sink, table_of

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
TRICKY = st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "\\", "'", "\u2028", "\x00", "null", " ", "é"]
)
NON_EMPTY = (TEXT | TRICKY).filter(bool)
TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def whole(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


FLAT = {
    "i8": (pa.int8(), whole(8)),
    "i": (pa.int32(), whole(32)),
    "l": (pa.int64(), whole(64)),
    "f": (pa.float32(), st.floats(width=32)),
    "d": (pa.float64(), st.floats()),
    "n": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    "big": (pa.decimal128(38, 10), st.decimals(-(10**20), 10**20, places=10)),
    "s": (pa.string(), NON_EMPTY),
    "t": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(date(1700, 1, 1), date(2200, 1, 1))),
    "at": (UTC_MICROS, TIMES),
}
NESTED = {
    "list": (pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
    "map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXT, whole(64), max_size=3)),
    "struct": (
        pa.struct([("p", pa.float64()), ("q", pa.list_(UTC_MICROS))]),
        st.fixed_dictionaries({"p": st.none() | st.floats(), "q": st.lists(TIMES, max_size=2)}),
    ),
}
# CSV knows no difference between an empty text and NULL, and its BINARY is text both ways.
EXACT = FLAT | NESTED | {"s": (pa.string(), TEXT | TRICKY), "x": (pa.binary(), st.binary())}
CASES = {
    "csv": ("out.csv", FLAT | NESTED),
    "jsonl": ("out.jsonl", EXACT),
    "parquet": ("out", EXACT),
}


def rows_of(columns):
    return st.lists(st.tuples(*(st.none() | values for _, values in columns.values())), max_size=8)


def comparable(value):
    """NaN equals NaN, and a decimal is its value."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", [*CASES])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_round_trip(name, tmp_path, data):
    path, described = CASES[name]
    columns = {column: type for column, (type, _) in described.items()}
    rows = data.draw(rows_of(described))
    table = table_of(columns, rows)
    cut = data.draw(st.integers(0, len(rows)))
    made = sink(name, tmp_path, columns, path=path)
    made.open()
    made.write(table.slice(0, cut))
    made.write(table.slice(cut))
    made.close()
    if not rows and name == "parquet":
        return
    read = CheckedSource("file", tmp_path, {"path": path}, columns | {"_pos": pa.int64()}, "_ts")
    assert comparable(read.rows()) == comparable(table.to_pylist())
