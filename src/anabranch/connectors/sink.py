"""What every sink is: a place outside where the tuples of one stream go, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SinkContext:
    """`schema` holds the query's columns, then `_pos` and `_ts` (int64)."""

    query: str
    schema: pa.Schema
    options: Mapping[str, Any]
    base: Path
    spark: Callable[[], SparkSession]
    run: str = ""
    """Which creation of the query this is: the same after a recovery, another one when the query
    was dropped and created anew. Empty if unknown."""
    resume: bool = False
    """The query goes on after a failure: `open` keeps what it has written."""


class Sink(Protocol):
    def __init__(self, context: SinkContext) -> None:
        """Check options and that the place can be written to; raise ConfigError or SinkError.
        Nothing is created yet."""

    def open(self) -> None:
        """Create or truncate what is written to."""

    def write(self, table: pa.Table) -> None:
        """Write all rows of `table` (columns as in `schema`), or raise SinkError and leave what was
        there before the call."""

    def close(self) -> None:
        """Make everything written so far whole and visible; release files. Idempotent."""


@runtime_checkable
class Resumable(Protocol):
    """A sink that knows what it has, so that nothing is written twice after a recovery: it is given
    only what lies behind `written`."""

    def written(self) -> int:
        """The last position of this query that is safely there; 0 if none, and if the query did not
        `resume`. To be asked after `open`, which also ends what an earlier instance left open."""


def written(sink: Sink) -> int | None:
    """None if the sink does not know."""
    return sink.written() if isinstance(sink, Resumable) else None


class Continued:
    """A sink, once it is open, with how much of its query it holds already. Whoever opens a sink
    that several sites can write fences off the one before, so what is there is asked for then."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._last = 0

    def open(self) -> None:
        self._sink.open()
        self._last = written(self._sink) or 0

    def holds(self, first: int, count: int) -> int:
        """How many of the `count` tuples from `first` on."""
        return min(count, max(0, self._last + 1 - first))
