"""Turns what a program gives for a stream, in whatever form, into an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.connectors.formats.columns import from_values
from anabranch.errors import TaskError
from anabranch.link.wire import EVENT_TIME


def as_rows(given: Any) -> list[Any]:
    """One row or several, or none, as a list; generators run to their end here."""
    if given is None:
        return []
    if isinstance(given, Mapping | tuple):
        return [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TaskError(
            f"{_shown(given)} is no row", remedy="Give a dict, a tuple, or rows of these."
        )
    return list(given)


def as_table(given: Any, columns: pa.Schema) -> pa.Table:
    """The stream's `columns` and `_ts`, which is NULL where it was not given.

    Raises TaskError if it does not fit; nothing is rounded or cut to make it.
    """
    columns_ = _columns(given, columns.names)
    arrays = [_typed(columns_[field.name], field) for field in columns]
    times = columns_.get(EVENT_TIME)
    if times is None:
        rows = len(arrays[0]) if arrays else 0
        times = pa.nulls(rows, pa.int64())
    else:
        times = _typed(times, pa.field(EVENT_TIME, pa.int64()))
    return pa.table([*arrays, times], names=[*columns.names, EVENT_TIME])


def _columns(given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Name → values; `_ts` too if it is there. A frame may have other columns besides."""
    if isinstance(given, DataFrame):
        given = given.toArrow()
    elif isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    elif given is not None and hasattr(given, "iloc"):
        given = pa.Table.from_pandas(given, preserve_index=False)
    if not isinstance(given, pa.Table):
        return _of_rows(as_rows(given), names)
    by_lower = {name.lower(): given.column(name) for name in given.column_names}
    missing = [name for name in names if name.lower() not in by_lower]
    if missing:
        raise _unlike(f"the column {missing[0]!r} is missing", names)
    return {
        name: by_lower[name.lower()] for name in (*names, EVENT_TIME) if name.lower() in by_lower
    }


def _of_rows(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """The columns of rows, as of a Python source: a missing key is NULL; but a key of no column is
    a mistake.
    """
    known = {name.lower(): name for name in (*names, EVENT_TIME)}
    columns: dict[str, list[Any]] = {name: [] for name in known.values()}
    for row in rows:
        values = _named(row, names, known)
        for name, column in columns.items():
            column.append(values.get(name))
    return columns


def _named(row: Any, names: Sequence[str], known: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(row, Mapping):
        strange = [key for key in row if str(key).lower() not in known]
        if strange:
            raise _unlike(f"the stream has no column {strange[0]!r}", names)
        return {known[str(key).lower()]: value for key, value in row.items()}
    if not isinstance(row, tuple | list):
        raise TaskError(f"{_shown(row)} is no row", remedy="A row is a dict or a tuple.")
    if len(row) != len(names):
        raise _unlike(f"a row of {len(row)} values", names)
    return dict(zip(names, row, strict=True))


def _typed(values: Any, field: pa.Field) -> Any:
    if isinstance(values, pa.ChunkedArray):
        if values.type == field.type:
            return values
        values = values.to_pylist()
    try:
        return from_values(values, None if field.name == EVENT_TIME else field.type)
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        reason = str(error).splitlines()[0]
        raise TaskError(f"column {field.name} ({field.type}): {reason}") from error


def _unlike(message: str, names: Sequence[str]) -> TaskError:
    return TaskError(message, remedy=f"The stream has {', '.join(names)}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
