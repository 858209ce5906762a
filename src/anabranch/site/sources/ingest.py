"""From a wrapper to a stream: event time, lateness, pacing, positions, watermark.

One thread per stream. What happens here happens before a tuple has a position, so everything
behind it stays a function of positions alone.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.connectors.wrapper import Releasing, Replayable, Wrapper
from anabranch.errors import AnabranchError, SourceError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import EVENT_TIME, record_batches
from anabranch.plan.catalog import StreamDef
from anabranch.runtime.log import note
from anabranch.site.sources.beats import beats
from anabranch.site.sources.journal import Entry, Journal
from anabranch.site.sources.pace import Pace
from anabranch.site.sources.shedder import Shedder
from anabranch.site.tasks.measures import Rate
from anabranch.spark.jvm import NO_JVM, jvm
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.restart import FOREVER

PACE_S = 0.01
"""Tuples that fall due within this time are sent together."""
LIVE_US = 60_000_000
"""A source whose newest event time is this close to the clock is live: when it is idle, its
watermark follows the clock. A replay of old data must not be outrun by the clock."""
GRACE_US = 1_000_000
"""A tuple of a live source may take this much longer to come than the one before it. A wrapper that
knows the event time of its next tuple says so in `upcoming` and needs no grace."""
PIECE_ROWS = 65_536


class Ingest:
    """States: `waiting` → `running` → `ended` | `failed` | `stopped`."""

    def __init__(
        self,
        stream: StreamDef,
        outlet: LiveOutlet,
        make: Callable[[threading.Event, Callable[[int], None]], Wrapper],
        heartbeat_s: float,
        journal: Journal | None = None,
        pace: Pace | None = None,
        shedder: Shedder | None = None,
    ) -> None:
        self.stream = stream
        self.outlet = outlet
        self.state = "waiting"
        self.error: AnabranchError | None = None
        self.failed_at: float | None = None
        self.late = 0
        self.skipped = 0
        self._stopped = threading.Event()
        self._rate = Rate()
        self._heartbeat_s = heartbeat_s
        self._newest = START_WATERMARK
        self._clock_floor = START_WATERMARK
        self._heard = 0.0
        self._holding = False
        self._lock = threading.Lock()
        self.wrapper = make(self._stopped, self._skip)
        replayable = isinstance(self.wrapper, Replayable) and self._speed is None
        self._journal = journal if replayable else None
        at_once = getattr(self.wrapper, "replay", False) and self._speed is None
        self._pace = pace if at_once else None
        self._shedder = shedder
        self._thread = threading.Thread(target=self._run, name=f"in-{stream.name}", daemon=True)

    @property
    def finite(self) -> bool:
        return self.wrapper.finite

    @property
    def _speed(self) -> float | None:
        speed: float | None = getattr(self.wrapper, "speed", None)
        return speed

    def resume(self, position: int) -> None:
        """Before the start: the first tuple given will be the one behind `position`, which must
        have been given before, with all that follow it; if nobody needs any of them, one of the
        last. Raises SourceError if that cannot be."""
        if position == FOREVER:
            entries = self._journal.entries if self._journal else []
            position = entries[-1].first - 1 if entries else 0
        if position and self._journal is None:
            raise SourceError(
                f"stream {self.stream.name} cannot be resumed: its source cannot be read again",
                remedy="Drop and create the queries that read it.",
            )
        if self._journal and self._journal.lacks(position):
            raise SourceError(
                f"stream {self.stream.name} cannot be resumed behind {position}: what was read then"
                " is needed no more and has been forgotten",
                remedy="Drop and create the queries that read it.",
            )
        self.outlet.start_at(position)

    def start(self) -> None:
        """Idempotent: a stream is read once, from when it first has a consumer."""
        if self.state == "waiting":
            self.state = "running"
            self._thread.start()
            if not getattr(self.wrapper, "replay", False):
                beats.every(self._heartbeat_s, self._beat)

    def close(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        if isinstance(self.wrapper, Releasing):
            self.wrapper.close()
        if self._journal:
            self._journal.close()
        if self._shedder:
            self._shedder.close()

    def report(self) -> dict[str, Any]:
        return {
            "stream": self.stream.name,
            "site": self.stream.site,
            "state": self.state,
            "finite": self.finite,
            "error": self.error.to_dict() if self.error else None,
            "failed_at": self.failed_at,
            "problem": getattr(self.wrapper, "problem", ""),
            "rows": self.outlet.last,
            "newest": self._newest,
            "late": self.late,
            "skipped": self.skipped,
            "shed": self._shedder.shed if self._shedder else 0,
            "rate": self._rate.per_second(time.monotonic()),
        } | (self.wrapper.report() if isinstance(self.wrapper, Releasing) else {})

    def _skip(self, rows: int) -> None:
        self.skipped += rows

    def _run(self) -> None:
        try:
            self._read(self._journal) if self._journal else self._read_once()
        except Exception as error:
            self._fail(_explained(error))
        else:
            self.state = "stopped" if self._stopped.is_set() else "ended"
            if self.state == "ended":
                self.outlet.end()

    def _read_once(self) -> None:
        for table in self._paced(self.wrapper.read()):
            now_us = time.time_ns() // 1000
            if not self._append(self._shed(table, self._allowed(table, now_us)), now_us):
                return

    def _read(self, journal: Journal) -> None:
        """What was read before as it was then, and on from there."""
        assert isinstance(self.wrapper, Replayable)
        if not self._replay(journal, self.wrapper):
            return
        cursor, given = self._behind(journal, self.wrapper)
        for table, behind in self.wrapper.read_from(cursor):
            self._holding = True
            with self._lock:
                now_us = time.time_ns() // 1000
                decided = self._newest, self._clock_floor, now_us, self._allowed(table, now_us)
                entry = Entry(self.outlet.last + 1 - given, cursor, behind, *decided)
                journal.add(entry)
            if not self._append(self._shed(table, entry.allowed), entry.now_us, given):
                return
            cursor, given = behind, max(0, given - len(table))
            journal.trim(self.outlet.released)
            if isinstance(self.wrapper, Releasing):
                first = journal.entries[journal.index(self.outlet.released)]
                self.wrapper.release(first.begin, first.first - 1)

    def _behind(self, journal: Journal, wrapper: Replayable) -> tuple[Any, int]:
        """The cursor behind what the journal has, and how many of the tuples that come then have
        been given before: some, if a source that was read elsewhere goes on here."""
        if journal.entries:
            return journal.entries[-1].end, 0
        if not self.outlet.last or not isinstance(wrapper, Releasing):
            return wrapper.start_cursor(), 0
        cursor, position = wrapper.released()
        if position > self.outlet.last:
            raise SourceError(f"it cannot be resumed behind {self.outlet.last}")
        return cursor, self.outlet.last - position

    def _replay(self, journal: Journal, wrapper: Replayable) -> bool:
        start = self.outlet.last
        for entry in journal.entries[journal.index(start) :]:
            with self._lock:
                self._newest, self._clock_floor = entry.newest, entry.floor
            table = self._shed(wrapper.reread(entry.begin, entry.end), entry.allowed)
            if not self._append(table, entry.now_us, given=max(0, start + 1 - entry.first)):
                return False
        return True

    def _allowed(self, table: pa.Table, now_us: int) -> int | None:
        return self._shedder.allowed(table, now_us) if self._shedder else None

    def _shed(self, table: pa.Table, allowed: int | None) -> pa.Table:
        if self._shedder is None or allowed is None:
            return table
        return self._shedder.kept(table, allowed)

    def _fail(self, error: AnabranchError) -> None:
        error.message = f"stream {self.stream.name}: {error.message}"
        self.state, self.error, self.failed_at = "failed", error, time.time()
        note("failed", error.line(), wrong=True, site=self.stream.site, query=self.stream.name)

    def _append(self, table: pa.Table, now_us: int, given: int = 0) -> bool:
        """Give the tuples that are not late positions, but for the first `given` of them, which
        have theirs; False when we are to stop."""
        self._holding = True
        for piece in record_batches(table, PIECE_ROWS):
            if self._pace:
                self._pace.wait(self._stopped)
            if not self.outlet.wait_for_room(self._stopped):
                return False
            with self._lock:
                timely, watermark = self._judge(self._timed(piece, now_us))
                fresh = timely.slice(given)
                given -= timely.num_rows - fresh.num_rows
                if fresh.num_rows:
                    self.outlet.append([fresh], watermark)
                self._heard = time.monotonic()
            self._rate.add(self._heard, fresh.num_rows)
        self._holding = False
        return True

    def _timed(self, piece: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
        """With `_ts` (the source's, else now) and `_born`, in the outlet's schema."""
        added = [pa.array(np.full(piece.num_rows, now_us, dtype=np.int64))]
        if EVENT_TIME not in piece.schema.names:
            # A clock that is set back makes no tuple late.
            now_us = max(now_us, self._newest, self._clock_floor)
            added.insert(0, pa.array(np.full(piece.num_rows, now_us, dtype=np.int64)))
        return pa.RecordBatch.from_arrays([*piece.columns, *added], schema=self.outlet.schema)

    def _judge(self, piece: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Drop what lies below the watermark that the tuples before it have set.

        That depends on the order of event times alone, not on how they are cut into pieces, unless
        the clock has moved the watermark of a live stream that was idle.
        """
        times = piece.column(EVENT_TIME).to_numpy()
        newest = np.maximum.accumulate(np.concatenate(([self._newest], times)))
        floor = np.maximum(newest[:-1], START_WATERMARK + self.stream.lateness_us)
        late = times < np.maximum(floor - self.stream.lateness_us, self._clock_floor)
        self._newest = int(newest[-1])
        watermark = max(self._newest - self.stream.lateness_us, self._clock_floor)
        watermark = min(watermark, END_WATERMARK - 1)  # an event time, however far, ends no stream
        if late.any():
            self.late += int(late.sum())
            piece = piece.filter(pa.array(~late))
        return piece, watermark

    def _beat(self) -> bool:
        """Let the watermark of a live stream that brings nothing follow the clock. Whether it may
        do so again."""
        if self._stopped.is_set() or self.state != "running":
            return False
        if self._lock.acquire(blocking=False):  # else something is coming
            try:
                self._follow_clock()
            finally:
                self._lock.release()
        return True

    def _follow_clock(self) -> None:
        idle_us = int((time.monotonic() - self._heard) * 1e6) if self._heard else 0
        floor = self._idle_floor(idle_us, time.time_ns() // 1000)
        if floor > self._clock_floor and not (self._holding or self.outlet.ended):
            self._clock_floor = floor
            self.outlet.append([], floor)

    def _idle_floor(self, idle_us: int, now_us: int) -> int:
        """Below this nothing can come any more, by the clock; START_WATERMARK if unknown."""
        if idle_us < self._heartbeat_s * 1e6 and self._heard:
            return START_WATERMARK
        if self.stream.timestamp is None and not getattr(self.wrapper, "own_time", False):
            return now_us
        if not self._heard or abs(now_us - idle_us - self._newest) >= LIVE_US:
            return START_WATERMARK
        upcoming = getattr(self.wrapper, "upcoming", None)
        reached = self._newest + idle_us - GRACE_US if upcoming is None else upcoming
        return min(reached, self._newest + idle_us) - self.stream.lateness_us

    def _paced(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """At `speed` × event time, if the wrapper has a speed; else as fast as they come."""
        return tables if self._speed is None else self._at_speed(tables, self._speed)

    def _at_speed(self, tables: Iterator[pa.Table], speed: float) -> Iterator[pa.Table]:
        start, origin = time.monotonic(), None
        for table in tables:
            if not len(table):
                continue
            times = np.maximum.accumulate(table.column(EVENT_TIME).to_numpy())
            origin = int(times[0]) if origin is None else origin
            due = start + (times.astype(float) - origin) / (speed * 1e6)
            done = 0
            while done < len(table) and not self._stopped.is_set():
                ready = int(np.searchsorted(due, time.monotonic() + PACE_S, side="right"))
                if ready > done:
                    yield table.slice(done, ready - done)
                    done = ready
                if done < len(table):
                    wait_s = max(PACE_S, float(due[done]) - time.monotonic())
                    self._stopped.wait(min(wait_s, threading.TIMEOUT_MAX))


def _explained(error: Exception) -> AnabranchError:
    if how := jvm.end(error.__cause__ or error):
        return SourceError(f"Spark's JVM has ended ({how})", remedy=NO_JVM)
    if isinstance(error, AnabranchError):
        return error
    traceback.print_exception(error)
    return SourceError(f"{type(error).__name__}: {error}")
