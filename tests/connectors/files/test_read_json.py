from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest

from tests.connectors.reading import UTC_MICROS, CheckedSource, message

NUMBERS = {"a": pa.int64(), "b": pa.float64()}


def jsonl(tmp_path, text, columns, timestamp=None, name="in.jsonl", **options):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return CheckedSource("file", tmp_path, {"path": name} | options, columns, timestamp)


def test_all_types(tmp_path):
    columns = {
        "i": pa.int32(),
        "d": pa.float64(),
        "n": pa.decimal128(38, 20),
        "s": pa.string(),
        "t": pa.bool_(),
        "day": pa.date32(),
        "at": UTC_MICROS,
        "x": pa.binary(),
        "list": pa.list_(pa.float64()),
        "map": pa.map_(pa.string(), pa.int64()),
        "struct": pa.struct([("p", pa.int32()), ("q", pa.list_(UTC_MICROS))]),
    }
    text = (
        '{"i": 1, "d": 2, "n": 1.23456789012345678901, "s": "é\\n", "t": true, '
        '"day": "2026-01-31", "at": "2026-01-31T12:00:00+01:00", "x": "/w==", '
        '"list": [1, null, 2.5], "map": {"k": 1}, "struct": {"p": 1, "q": ["1970-01-01"]}}\n'
        "{}\n"
    )
    source = jsonl(tmp_path, text, columns)
    first, second = source.rows()
    assert first == {
        "i": 1,
        "d": 2.0,
        "n": Decimal("1.23456789012345678901"),
        "s": "é\n",
        "t": True,
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 11, tzinfo=UTC),
        "x": b"\xff",
        "list": [1.0, None, 2.5],
        "map": [("k", 1)],
        "struct": {"p": 1, "q": [datetime(1970, 1, 1, tzinfo=UTC)]},
    }
    assert set(second.values()) == {None}
    assert source.table().schema == pa.schema(list(columns.items()))


def test_numbers_that_json_lacks(tmp_path):
    lines = "".join(json.dumps({"B": v}) + "\n" for v in ["NaN", "Infinity", "-Infinity", 2**60])
    values = [row["b"] for row in jsonl(tmp_path, lines, {"b": pa.float64()}).rows()]
    assert str(values[0]) == "nan"
    assert values[1:] == [float("inf"), float("-inf"), 2.0**60]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"a": 1', "malformed JSON: Expecting ',' delimiter at column 8"),
        ("[1]", "the line is JSON, but not an object like {…}"),
        ('{"a": "1"}', "a is '1', which is no BIGINT"),
        ('{"a": 1.5}', "a is 1.5, which is no BIGINT"),
        ('{"a": true}', "a is True, which is no BIGINT"),
        ('{"a": 1e400}', "a is inf, which is no BIGINT"),
        ('{"b": true}', "b is True, which is no DOUBLE"),
        ('{"b": "x"}', "b is 'x', which is no DOUBLE"),
        ('{"b": []}', "b is [], which is no DOUBLE"),
    ],
)
def test_malformed_lines(tmp_path, line, complaint):
    text = f'{{"a": 1}}\n\n{line}\n{{"a": 2.0}}'
    assert message(jsonl(tmp_path, text, NUMBERS).rows) == (
        f"{tmp_path}/in.jsonl:3: {complaint}. Fix the line or set on_error = 'skip'."
    )
    source = jsonl(tmp_path, text, NUMBERS, on_error="skip")
    assert [row["a"] for row in source.rows()] == [1, 2]
    assert source.skipped == [1]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.list_(pa.int64()), '"abc"'),
        (pa.list_(pa.int64()), "[1.5]"),
        (pa.struct([("p", pa.int64())]), "[1]"),
        (pa.map_(pa.string(), pa.int64()), '{"k": "v"}'),
        (pa.string(), "1"),
        (pa.string(), '"\\ud800"'),
        (pa.binary(), '"§"'),
        (pa.decimal128(4, 2), "1.234"),
        (pa.decimal128(4, 2), '"x"'),
        (pa.date32(), '"31.1.2026"'),
        (UTC_MICROS, "1.5"),
        (pa.bool_(), "2"),
    ],
)
def test_values_that_do_not_fit_their_type(tmp_path, type, value):
    text = f'{{"v": null}}\n{{"v": {value}}}\n'
    source = jsonl(tmp_path, text, {"v": type}, on_error="skip")
    assert source.rows() == [{"v": None}]
    assert source.skipped == [1]
    assert "in.jsonl:2: v is " in message(jsonl(tmp_path, text, {"v": type}).rows)


def test_invalid_utf8(tmp_path):
    source = jsonl(tmp_path, b'{"a": 1}\n{"a": "\xff"}\n', NUMBERS)
    assert "in.jsonl:2: the line is not valid UTF-8" in message(source.rows)


def test_event_time_is_a_number_or_iso_and_required(tmp_path):
    text = '{"ts": 5}\n{"ts": "1970-01-01T00:00:01Z"}\n{"ts": null}\n{}\n{"ts": 1.5}\n'
    source = jsonl(tmp_path, text, {"a": pa.int64()}, "ts", on_error="skip")
    assert [row["_ts"] for row in source.rows()] == [5, 1_000_000]
    assert source.skipped == [3]
    assert "in.jsonl:3: the event time ts is missing" in message(
        jsonl(tmp_path, text, {"a": pa.int64()}, "ts").rows
    )


def test_only_newlines_end_lines(tmp_path):
    text = '\ufeff{"s": "x\u2028\u0085y"}\r\n{"s": "z"}'
    source = jsonl(tmp_path, text, {"s": pa.string()})
    assert [row["s"] for row in source.rows()] == ["x\u2028\u0085y", "z"]


def test_several_blocks(tmp_path):
    pad = "x" * 100
    text = "".join(f'{{"a": {i}, "pad": "{pad}"}}\n' for i in range(60_000))
    tables = list(jsonl(tmp_path, text, {"a": pa.int64()}).connector.read())
    assert len(tables) > 1
    assert pa.concat_tables(tables)["a"].to_pylist() == list(range(60_000))
    source = jsonl(tmp_path, text + "nonsense\n", {"a": pa.int64()})
    assert "in.jsonl:60001: malformed JSON" in message(source.rows)


@pytest.mark.parametrize("text", ['[{"a": 1},\n {"a": 2}]', '\ufeff\n[\n  {"a": 1}\n]'])
def test_one_array_is_told_before_it_is_read(tmp_path, text):
    (tmp_path / "in.json").write_text(text)
    made = partial(CheckedSource, "file", tmp_path, {"path": "in.json"}, {"a": pa.int64()})
    assert message(made) == (
        f"{tmp_path}/in.json: the file is one JSON array. Write one object a line:"
        " jq -c '.[]' FILE > FILE.jsonl makes them."
    )
