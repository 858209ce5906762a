from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.errors import SourceError
from tests.connectors.reading import UTC_MICROS, CheckedSource, message

NUMBERS = {"a": pa.int64(), "b": pa.float64()}


def csv(tmp_path, text, columns, timestamp=None, name="in.csv", **options):
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(content)
    return CheckedSource("file", tmp_path, {"path": name} | options, columns, timestamp)


def test_all_types(tmp_path):
    columns = {
        "i8": pa.int8(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "n": pa.decimal128(10, 2),
        "s": pa.string(),
        "t": pa.bool_(),
        "day": pa.date32(),
        "at": UTC_MICROS,
        "x": pa.binary(),
        "list": pa.list_(pa.int32()),
    }
    text = (
        "i8,i,l,f,d,n,s,t,day,at,x,list\n"
        '-1, 2,+3,0.5,1e3,1.20, s ,TRUE,2026-01-31,2026-01-31T12:00:00Z,né,"[1, null]"\n'
        ",,,,,,,,,,,\n"
    )
    source = csv(tmp_path, text, columns)
    first, second = source.rows()
    assert first == {
        "i8": -1,
        "i": 2,
        "l": 3,
        "f": 0.5,
        "d": 1000.0,
        "n": Decimal("1.20"),
        "s": " s ",
        "t": True,
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "x": "né".encode(),
        "list": [1, None],
    }
    assert set(second.values()) == {None}
    assert source.table().schema == pa.schema(list(columns.items()))


def test_booleans(tmp_path):
    source = csv(tmp_path, "b\ntrue\nFalse\n1\n0\n", {"b": pa.bool_()})
    assert [row["b"] for row in source.rows()] == [True, False, True, False]


def test_columns_by_name_whatever_case_and_order(tmp_path):
    source = csv(tmp_path, "\ufeffextra,B,a\nx,0.5,1\n", NUMBERS)
    assert source.rows() == [{"a": 1, "b": 0.5}]


def test_quotes_newlines_blank_lines_and_other_line_ends(tmp_path):
    text = 'a,s\r\n1,"say ""hi"",\nthen go"\r\n\r\n2,\u2028x\r\n'
    source = csv(tmp_path, text, {"a": pa.int64(), "s": pa.string()})
    assert [row["s"] for row in source.rows()] == ['say "hi",\nthen go', "\u2028x"]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1500000", 1_500_000),
        ("-1", -1),
        ("1970-01-01T00:00:01.5Z", 1_500_000),
        ("1970-01-01 00:00:01.5", 1_500_000),
        ("1970-01-01T00:00:01.500000", 1_500_000),
        ("1970-01-01T02:00:01.5+02:00", 1_500_000),
        ("1970-01-01 02:00:01.5+0200", 1_500_000),
        ("1969-12-31T22:30:01.5-01:30", 1_500_000),
        ("1970-01-01t00:00:01.500000999z", 1_500_000),
        ("1970-01-01", 0),
        ("1970-01-01 00:01", 60_000_000),
    ],
)
def test_event_times(tmp_path, text, micros):
    source = csv(tmp_path, f"a,when\n1,{text}\n2,5\n", {"a": pa.int64()}, "when")
    assert [row["_ts"] for row in source.rows()] == [micros, 5]


def test_event_time_may_be_a_column_too(tmp_path):
    source = csv(tmp_path, "ts\n1970-01-01T00:00:01Z\n", {"ts": UTC_MICROS}, "ts")
    assert source.rows() == [{"ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "_ts": 1_000_000}]


BAD = [
    ("x,0.5", "a is 'x', which is no BIGINT"),
    ("99999999999999999999,0.5", "a is '99999999999999999999', which is no BIGINT"),
    ("1,half", "b is 'half', which is no DOUBLE"),
    ("1", "the line has 1 fields where the header has 2"),
    ("1,2,3", "the line has 3 fields where the header has 2"),
    ('"1"x,2', "malformed CSV: ',' expected after '\"'"),
]


@pytest.mark.parametrize(("line", "complaint"), BAD)
def test_a_malformed_row_fails_with_its_line(tmp_path, line, complaint):
    source = csv(tmp_path, f'a,b\n1,"\n0.5"\n{line}\n3,0.5\n', NUMBERS)
    assert message(source.rows) == (
        f"{tmp_path}/in.csv:4: {complaint}. Fix the line or set on_error = 'skip'."
    )


@pytest.mark.parametrize(("line", "complaint"), BAD)
def test_a_malformed_row_is_skipped_and_counted(tmp_path, line, complaint):
    source = csv(tmp_path, f"a,b\n1,0.5\n{line}\n{line}\n3,0.5\n", NUMBERS, on_error="skip")
    assert [row["a"] for row in source.rows()] == [1, 3]
    assert sum(source.skipped) == 2


def test_a_row_bad_in_two_ways_is_counted_once(tmp_path):
    source = csv(tmp_path, "a,b\nx,y\n1,2\n", NUMBERS, on_error="skip")
    assert source.rows() == [{"a": 1, "b": 2.0}]
    assert source.skipped == [1]


def test_the_first_malformed_row_is_named(tmp_path):
    source = csv(tmp_path, "a,b\n1,x\ny,1\n1\n", NUMBERS)
    assert "in.csv:2: b is 'x'" in message(source.rows)


def test_nothing_but_malformed_rows(tmp_path):
    source = csv(tmp_path, "a,b\nx,1\n2\n", NUMBERS, on_error="skip")
    assert source.rows() == []
    assert sum(source.skipped) == 2


def test_open_quote(tmp_path):
    source = csv(tmp_path, 'a,b\n1,2\n3,"4\n5,6\n', NUMBERS)
    assert "in.csv:3: a quoted field is never closed" in message(source.rows)


def test_invalid_utf8(tmp_path):
    columns = {"s": pa.string(), "t": pa.string()}
    text = b"s,t,u\nok,ok,\xff\ncaf\xe9,x,y\n"
    assert "in.csv:3: s is not valid UTF-8: 'caf\\udce9'" in message(
        csv(tmp_path, text, columns).rows
    )
    source = csv(tmp_path, text, columns, on_error="skip")
    assert source.rows() == [{"s": "ok", "t": "ok"}]


@pytest.mark.parametrize("value", ["", "yesterday", "2026-13-01", "1.5"])
def test_bad_event_time(tmp_path, value):
    columns = {"a": pa.int64()}
    text = f"a,ts\n1,5\n2,{value}\n"
    expected = (
        f"the event time ts is {value!r}, neither ISO 8601 nor µs since the epoch"
        if value
        else "the event time ts is missing"
    )
    assert f"in.csv:3: {expected}. Fix" in message(csv(tmp_path, text, columns, "ts").rows)
    source = csv(tmp_path, text, columns, "ts", on_error="skip")
    assert [row["a"] for row in source.rows()] == [1]
    assert source.skipped == [1]


def test_missing_column_and_event_time(tmp_path):
    assert message(lambda: csv(tmp_path, "a, c \n", NUMBERS)) == (
        f"{tmp_path}/in.csv: the column b is missing; there is a, c. "
        "Name it in CREATE STREAM as it is named there."
    )
    assert "the event time at is missing; there is a, b" in message(
        lambda: csv(tmp_path, "a,b\n", NUMBERS, "at")
    )


def test_empty_files(tmp_path):
    assert message(lambda: csv(tmp_path, "", NUMBERS)) == (
        f"{tmp_path}/in.csv: the file is empty. Its first line must name the columns."
    )
    assert csv(tmp_path, "a,b\n", NUMBERS).rows() == []


def test_many_blocks_and_line_numbers_across_them(tmp_path):
    lines = [f"{i},{i / 2}" for i in range(50_000)]
    source = csv(tmp_path, "a,b\n" + "\n".join(lines), NUMBERS)
    tables = list(source.connector.read())
    assert max(table.num_rows for table in tables) <= 20_000
    assert pa.concat_tables(tables)["a"].to_pylist() == list(range(50_000))
    lines[45_000] = "x,1"
    assert "in.csv:45002: a is 'x'" in message(
        csv(tmp_path, "a,b\n" + "\n".join(lines), NUMBERS).rows
    )


def test_unreadable_file(tmp_path):
    source = csv(tmp_path, "a,b\n", NUMBERS)
    (tmp_path / "in.csv").unlink()
    with pytest.raises(SourceError, match=r"in\.csv: No such file or directory"):
        source.rows()
