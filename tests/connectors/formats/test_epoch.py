"""Event times as whole numbers of any unit, and those that are taken for another than they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.connectors.formats.columns import from_arrow, from_text, from_values
from anabranch.connectors.formats.table_builder import Block, TableBuilder
from anabranch.connectors.formats.times import event_type, micros, micros_of
from anabranch.errors import ScriptError, SourceError
from anabranch.language import CreateStream, Script, parse
from tests.connectors.reading import context

NOW_S = int(time.time())
PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TIMES = {"ts": pa.timestamp("us", "UTC")}


def texts(numbers: list[int]) -> list[str]:
    return [str(number) for number in numbers]


FORMS: list[tuple[Callable[..., Any], Callable[[list[int]], Any]]] = [
    (from_text, texts),
    (from_values, list),
    (from_values, texts),
    (from_arrow, pa.array),
    (from_arrow, lambda numbers: pa.array(texts(numbers))),
]


@pytest.mark.parametrize(("convert", "form"), FORMS)
@pytest.mark.parametrize("unit", PER_S)
def test_every_form_in_every_unit(
    convert: Callable[..., Any], form: Callable[[list[int]], Any], unit: str
) -> None:
    found = convert(form([NOW_S * PER_S[unit], -PER_S[unit]]), event_type(unit))
    assert found.to_pylist() == [NOW_S * 1_000_000, -1_000_000]


def test_text_with_a_date_is_what_it_says_in_any_unit() -> None:
    both = ["1970-01-01T00:00:02Z", "3000"]
    assert from_text(both, event_type("ms")).to_pylist() == [2_000_000, 3_000_000]


@pytest.mark.parametrize("value", [-1001, -1000, -999, -1, 0, 1, 999, 1000])
def test_nanoseconds_are_cut_off_downwards(value: int) -> None:
    many = micros_of(pa.array([value]), event_type("ns")).to_pylist()
    assert many == [value // 1000] == [micros(value, event_type("ns"))]


def test_too_many_seconds_are_no_event_time() -> None:
    with pytest.raises(ValueError, match="overflow"):
        from_text(["9223372036854775807"], event_type("s"))


def built(value: Any, tmp_path: Path, **more: Any) -> pa.Table:
    made = context(tmp_path, {}, TIMES, timestamp="ts", begins=True, **more)
    builder = TableBuilder(made, "skip", from_values)
    return builder.build(Block([[value], [value]], [7]), lambda row: f"topic t, row {row}")


@pytest.mark.parametrize("form", [int, str])
@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
def test_another_unit_than_it_is_read_in_is_refused_at_the_first_row(
    unit: str, form: Callable[[int], Any], tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as caught:
        built(form(NOW_S * PER_S[unit]), tmp_path)
    assert caught.value.place == "topic t, row 7"
    assert f"the event time ts is {NOW_S * PER_S[unit]}, which is " in caught.value.message
    assert caught.value.remedy == (f"Write TIMESTAMP ts UNIT {unit}, or UNIT us if it is meant so.")
    assert built(form(NOW_S * PER_S[unit]), tmp_path, unit="us")["_ts"].to_pylist() == [
        NOW_S * PER_S[unit]
    ]


@pytest.mark.parametrize(
    "value",
    [0, 1_000_000, NOW_S * 10**6, "1970-01-01T00:30:00Z"],
    ids=["zero", "a second", "now", "a date"],
)
def test_what_may_be_microseconds_is_taken_as_such(value: Any, tmp_path: Path) -> None:
    assert len(built(value, tmp_path)) == 1


def test_a_stream_that_goes_on_is_not_doubted(tmp_path: Path) -> None:
    made = context(tmp_path, {}, TIMES, timestamp="ts")
    block = Block([[NOW_S], [NOW_S]], [1])
    assert len(TableBuilder(made, "fail", from_values).build(block, str)) == 1


def test_a_declared_time_is_in_the_unit_too(tmp_path: Path) -> None:
    table = built(NOW_S * 1000, tmp_path, unit="ms")
    assert table["ts"].cast(pa.int64()).to_pylist() == table["_ts"].to_pylist() == [NOW_S * 10**6]


def test_a_value_that_is_none_names_the_unit(tmp_path: Path) -> None:
    made = context(tmp_path, {}, {}, timestamp="ts", unit="ms")
    with pytest.raises(SourceError, match="neither ISO 8601 nor ms since the epoch"):
        TableBuilder(made, "fail", from_values).build(Block([["soon"]], [1]), str)


def stream(clause: str) -> CreateStream:
    text = f"CREATE STREAM s (a INT) {clause} FROM file(path = 'a.csv') AT x;"
    (statement,) = parse(Script(text, "t.sql"))
    assert isinstance(statement, CreateStream)
    return statement


@pytest.mark.parametrize("unit", PER_S)
def test_the_clause(unit: str) -> None:
    assert stream(f"TIMESTAMP ts UNIT {unit} LATENESS 2s").unit == unit
    assert stream("TIMESTAMP ts LATENESS 2s").unit is None


@pytest.mark.parametrize(
    "clause",
    [
        "TIMESTAMP ts MILLIS",
        "TIMESTAMP ts ms",
        "TIMESTAMP ts / 1000",
        "TIMESTAMP ts * 1000",
        "TIMESTAMP timestamp_millis(ts)",
        "TIMESTAMP (ts * 1000)",
        "TIMESTAMP ts UNIT days",
    ],
)
def test_what_others_write_is_told_the_clause(clause: str) -> None:
    with pytest.raises(ScriptError, match=r"UNIT (ms|s)"):
        stream(clause)
