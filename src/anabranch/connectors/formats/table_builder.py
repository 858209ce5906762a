"""Turns columns of raw values into tables of a stream: the wanted fields are found by name, and
malformed rows are raised or left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from anabranch.connectors.formats.times import (
    UNITS,
    event_type,
    is_event_time,
    micros,
    mistaken,
    shown,
    unit_of,
)
from anabranch.connectors.options import TEXT, Option
from anabranch.connectors.source import EVENT_TIME, SourceContext
from anabranch.errors import SourceError
from anabranch.language.source import clip
from anabranch.spark.inside import from_arrow_type

_MANY = 20


def _listed(names: Sequence[str]) -> str:
    """The names for a message, cut short: a file of another kind may have anything in their
    place.
    """
    shown = ", ".join(clip(name) for name in names[:_MANY])
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return shown + more or "no column"


def locate(
    wanted: Sequence[str], present: Sequence[str], timestamp: str | None, place: str
) -> list[int]:
    """The index in `present` of each wanted name; an exact match goes before one in other case.
    SourceError says what is missing at `place` and what exists instead.
    """
    return [_index(name, present, name == timestamp, place) for name in wanted]


def _index(name: str, present: Sequence[str], is_time: bool, place: str) -> int:
    if name in present:
        return present.index(name)
    lowered = [field.strip().lower() for field in present]
    if name.lower() in lowered:
        return lowered.index(name.lower())
    what = f"the event time {name}" if is_time else f"the column {name}"
    raise SourceError(
        f"{what} is missing; there is {_listed(present)}",
        place=place,
        remedy="Name it in CREATE STREAM as it is named there.",
    )


ON_ERROR = Option(
    "on_error",
    TEXT,
    "what a malformed row does: 'fail' stops the stream, 'skip' leaves the row out and counts it",
    default="fail",
    choices=("fail", "skip"),
)
MAX_ROWS = 65_536
"""Of a table that a source yields."""

UNFIT = (ValueError, TypeError, ArithmeticError, NotImplementedError)
"""What a conversion raises when a value does not fit: pyarrow's errors are among these."""

Convert = Callable[[Any, pa.DataType | None], pa.Array]


@dataclass
class Block:
    """Rows as read: `columns` of raw values, one per name of `source_names`; the `numbers` (lines,
    rows) of the rows in the source; and the faults of rows that could not be read at all.
    """

    columns: Sequence[Any]
    numbers: Sequence[int]
    malformed: dict[int, str] = field(default_factory=dict)


def source_names(context: SourceContext) -> list[str]:
    """The fields to look for in the source: the declared columns, then the event time's."""
    return [*context.schema.names, *([context.timestamp] if context.timestamp else [])]


def table_schema(context: SourceContext) -> pa.Schema:
    """The schema of a source's tables, if the source gets its event time only by `timestamp`."""
    if not context.timestamp:
        return context.schema
    return context.schema.append(pa.field(EVENT_TIME, pa.int64()))


class TableBuilder:
    """Turns blocks into tables. `convert` makes one column; `remedy` says where to correct a
    row.
    """

    def __init__(
        self,
        context: SourceContext,
        on_error: str,
        convert: Convert,
        remedy: str = "Fix the line or set on_error = 'skip'.",
    ) -> None:
        self._context = context
        self._skip = on_error == "skip"
        self._convert = convert
        self._remedy = remedy
        self._schema = table_schema(context)
        self._names = source_names(context)
        self.types: list[pa.DataType | None] = [*context.schema.types]
        """Of the columns, and of the event time behind them."""
        if context.timestamp:
            self.types.append(event_type(context.unit))
        self._converts = [self._conversion(field) for field in context.schema]
        self._checks_unit = bool(context.begins and context.timestamp and not context.unit)

    def build(self, block: Block, place: Callable[[int], str]) -> pa.Table:
        """The well-formed rows of `block`. Where rows are to fail, SourceError names the first
        malformed row; `place` says where a row number is.
        """
        arrays, unfit = self._convert_all(block)
        malformed = block.malformed | {block.numbers[row]: text for row, text in unfit.items()}
        if malformed:
            self._report(malformed, place)
        if unfit:
            rest = [row for row in range(len(block.numbers)) if row not in unfit]
            columns = [_rows(values, rest) for values in block.columns]
            return self.build(Block(columns, [block.numbers[row] for row in rest]), place)
        if self._checks_unit and block.numbers:
            self._checks_unit = False
            self._check_unit(block.columns[-1][0], place(block.numbers[0]))
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _conversion(self, field: pa.Field) -> Convert:
        """How to convert the field. A column of time that is also the event time is in the event
        time's unit.
        """
        if field.name != self._context.timestamp or not pt.is_timestamp(field.type):
            return self._convert
        unit = event_type(self._context.unit)

        def convert(values: Any, type: pa.DataType | None) -> pa.Array:
            return self._convert(values, unit).cast(pa.timestamp("us", "UTC")).cast(type)

        return self._convert if unit is None else convert

    def _check_unit(self, value: Any, place: str) -> None:
        mistake = mistaken(value, time.time_ns() // 1000)
        if mistake is None:
            return
        number, when, unit = mistake
        meant = shown(micros(number, event_type(unit)))
        field = self._context.timestamp
        raise SourceError(
            f"the event time {field} is {number}, which is {when} in microseconds and {meant} in"
            f" {UNITS[unit]}",
            place=place,
            remedy=f"Write TIMESTAMP {field} UNIT {unit}, or UNIT us if it is meant so.",
        )

    def _convert_all(self, block: Block) -> tuple[list[pa.Array], dict[int, str]]:
        arrays: list[pa.Array] = []
        unfit: dict[int, str] = {}
        converts = [*self._converts, self._convert][: len(self._names)]
        for name, type, convert, values in zip(
            self._names, self.types, converts, block.columns, strict=True
        ):
            try:
                arrays.append(_column(values, type, convert))
            except UNFIT:
                for row in self._unfit_rows(values, type, convert, 0):
                    unfit.setdefault(row, _complaint(name, type, values[row]))
        return arrays, unfit

    def _unfit_rows(
        self, values: Any, type: pa.DataType | None, convert: Convert, offset: int
    ) -> list[int]:
        """The rows that cannot be converted, found by halving: few bad rows in a block cost few
        conversions. Where a row is to fail, the first one is enough.
        """
        try:
            _column(values, type, convert)
            return []
        except UNFIT:
            if len(values) == 1:
                return [offset]
        half = len(values) // 2
        left = self._unfit_rows(values[:half], type, convert, offset)
        if left and not self._skip:
            return left
        return left + self._unfit_rows(values[half:], type, convert, offset + half)

    def _report(self, malformed: dict[int, str], place: Callable[[int], str]) -> None:
        if self._skip:
            self._context.skipped(len(malformed))
            return
        first = min(malformed)
        raise SourceError(malformed[first], place=place(first), remedy=self._remedy)


def _column(values: Any, type: pa.DataType | None, convert: Convert) -> pa.Array:
    array = convert(values, type)
    if is_event_time(type) and array.null_count:
        raise ValueError("no event time")
    return array


def sql_type(type: pa.DataType) -> str:
    """The type as CREATE STREAM declares it: `BIGINT`, `DECIMAL(10,2)`."""
    return str(from_arrow_type(type).simpleString().upper())


def _complaint(name: str, type: pa.DataType | None, value: Any) -> str:
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if is_event_time(type) and (value is None or value == ""):
        return f"the event time {name} is missing"
    if isinstance(value, str) and not value.isprintable() and _surrogates(value):
        return f"{name} is not valid UTF-8: {_short(value)}"
    if type is None or pt.is_duration(type):
        unit = {"us": "µs"}.get(unit_of(type), unit_of(type))
        return (
            f"the event time {name} is {_short(value)}, neither ISO 8601 nor {unit} since the epoch"
        )
    return f"{name} is {_short(value)}, which is no {sql_type(type)}"


def _surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _rows(values: Any, rows: list[int]) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values.take(pa.array(rows, pa.int64()))
    return [values[row] for row in rows]
