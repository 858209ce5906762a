"""What every source is: something outside that yields Arrow tables.

A source only reads. The ingest loop after it adds lateness, event-time pacing, positions,
watermarks and `_born`, alike for all sources.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.connectors.options import Connector, undefined
from anabranch.link.reports import SourceNews
from anabranch.link.wire import EVENT_TIME
from anabranch.spark.kept.expressions import InSlot, Mode, at_once

__all__ = ["EVENT_TIME", "Cursor", "Source", "SourceContext"]

Cursor: TypeAlias = Any
"""A place in a source, as JSON data: what lies before it has been read."""


@dataclass(frozen=True)
class SourceContext:
    """All that a source may know. `schema` holds the declared columns; `timestamp` is the name of
    the source field with the event time, which need not be among them.
    """

    stream: str
    schema: pa.Schema
    timestamp: str | None
    options: Mapping[str, Any]
    base: Path
    spark: Callable[[], SparkSession]
    stopped: threading.Event = field(default_factory=threading.Event)
    skipped: Callable[[int], None] = lambda rows: None
    """Called with the number of malformed rows left out (`on_error = 'skip'`)."""
    unit: str = ""
    """Of event times that are whole numbers, if the stream says it: s, ms, us or ns."""
    resume: bool = False
    """It goes on after a restart: what it reads from need not be there yet."""
    begins: bool = False
    """The first tuple that is read is the first of the stream."""
    plans: Mode = "auto"
    in_slot: InSlot = at_once
    """What a source has Spark compute runs in a slot of its site, between task instances."""


class Source(Connector):
    """Something outside that brings tuples. The class declares by the attributes below what the
    source can do; nobody looks for methods.

    A `replayable` source defines `start_cursor`, `read_from` and `reread`, any other `read`.
    """

    replayable: ClassVar[bool] = False
    """It can be read again from a cursor, by another process too: it survives a killed site.

    The cursors of one reading are `start_cursor()` and those that came with each table. What was
    left out as malformed is left out again, and counted only when it is read for the first time.
    """
    releasing: ClassVar[bool] = False
    """It keeps what may be read again itself, and is told when it need not."""
    partitioned: ClassVar[bool] = False
    """It can be read in parts by several processes, again and again."""

    finite: bool = False
    """It has an end, so that waiting for it makes sense."""
    speed: float | None = None
    """So many times faster than its event times say are its tuples given; None: as fast as they
    can be read. One with a speed is not read again."""
    historic: bool = False
    """Its event times are in the past: the clock must not move the watermark."""
    own_time: bool = False
    """Its tables have EVENT_TIME even if the stream declares no event time."""
    upcoming: int | None = None
    """The event time of its next tuple, if it knows."""
    problem: str = ""
    """Why nothing can come at present; it does again by itself."""

    def __init__(self, context: SourceContext) -> None:
        """Checks options and that the source is there; raises ConfigError or SourceError. Nothing
        is read and nothing is started.
        """

    @classmethod
    def lacking(cls) -> list[str]:
        needed = ["start_cursor", "read_from", "reread"] if cls.replayable else ["read"]
        return undefined(cls, Source, [*needed, *["release", "released"] * cls.releasing])

    def read(self) -> Iterator[pa.Table]:
        """Tables with exactly the columns of `schema` in its order and types, and EVENT_TIME last
        if `timestamp` is given (or the source has a time of its own). Tables are bounded in size.
        Returns at the end of the source, or soon after `stopped` is set, even when no data
        comes."""
        return (table for table, _ in self.read_from(self.start_cursor()))

    def start_cursor(self) -> Cursor:
        """The cursor at which a first reading begins."""
        raise NotImplementedError

    def read_from(self, cursor: Cursor) -> Iterator[tuple[pa.Table, Cursor]]:
        """Reads like `read`, from `cursor` on; each table comes with the cursor after it."""
        raise NotImplementedError

    def reread(self, begin: Cursor, end: Cursor) -> pa.Table:
        """The table that `read_from` gave between two consecutive cursors: the same rows in the
        same order. Raises SourceError if the source no longer has them.
        """
        raise NotImplementedError

    def reread_many(self, begin: Cursor, ends: Iterator[Cursor]) -> Iterator[tuple[pa.Table, int]]:
        """The tables that `read_from` gave between `begin` and the first of `ends`, that and the
        next, and so on. Several may come together as one table, with the number of tables that it
        holds.
        """
        for end in ends:
            yield self.reread(begin, end), 1
            begin = end

    def release(self, cursor: Cursor, position: int) -> None:
        """Promises that what lies before `cursor`, that is the tuples up to `position`, is never
        read again.
        """

    def released(self) -> tuple[Cursor, int]:
        """The last `release`, as it is kept with the source's data: a reading begins there if it
        knows of none before it. May wait.
        """
        raise NotImplementedError

    def report(self) -> SourceNews | None:
        """The source's own news of the stream, which replaces other knowledge of it. Never
        waits.
        """
        return None

    def close(self) -> None:
        """Called at the end, whether or not it was read. Calling it again does no harm."""
