"""Results on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.connectors.options import COUNT, Option, take
from anabranch.connectors.sink import ANEW, Beginning, Sink, SinkContext
from anabranch.errors import SinkError
from anabranch.terminal import printable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ConsoleSink(Sink):
    """Prints one line a tuple: the query, the event time, then `column=value` for each column."""

    lasting = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("limit", COUNT, "how many tuples are shown; all if left out"),
    )

    def __init__(self, context: SinkContext) -> None:
        self._limit: int | None = take("console", self.options, context.options)["limit"]
        self._query = context.query
        self._shown = 0

    def open(self, begin: Beginning = ANEW) -> None:
        self._shown = 0

    def write(self, table: pa.Table) -> None:
        wanted = table if self._limit is None else table.slice(0, self._limit - self._shown)
        lines = [tuple_line(self._query, row) for row in wanted.to_pylist()]
        self._shown += len(lines)
        if lines and self._shown == self._limit:
            lines.append(f"{self._query}  … only the first {self._limit} tuples are shown")
        _print(lines)

    def close(self) -> None:
        """Releases nothing: the terminal is not ours."""


_OWN = ("_pos", "_ts")


def tuple_line(query: str, row: Mapping[str, Any]) -> str:
    """A tuple as a person reads it; the query's name is left out if it is empty."""
    time = _iso(_EPOCH + timedelta(microseconds=row["_ts"]))
    columns = [f"{name}={_text(value)}" for name, value in row.items() if name not in _OWN]
    return "  ".join([*([query] if query else []), time, " ".join(columns)])


def _print(lines: list[str]) -> None:
    if not lines:
        return
    try:
        sys.stdout.write("\n".join(map(printable, lines)) + "\n")
        sys.stdout.flush()
    except OSError as error:
        raise SinkError(error.strerror or str(error), place="the terminal") from error


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _text(value: Any) -> str:
    """A value as a person reads it. Text is quoted if its end could not be seen otherwise."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return value if value.isprintable() and value and " " not in value else repr(value)
    return _iso(value) if isinstance(value, datetime) else str(value)
