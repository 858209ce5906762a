"""From a wrapper to a stream: event time, lateness, pacing, positions, watermark.

One thread per stream. What happens here happens before a tuple has a position, so everything
behind it stays a function of positions alone.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.connectors.wrapper import Releasing, Replayable, Wrapper
from anabranch.errors import AnabranchError, CannotResume, SourceAway, SourceError, StorageError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import EVENT_TIME, record_batches
from anabranch.plan.catalog import StreamDef
from anabranch.runtime.log import note
from anabranch.site.sources.ahead import far_ahead, skips, too_far
from anabranch.site.sources.arrival import ArrivalClock
from anabranch.site.sources.beats import beats
from anabranch.site.sources.checksum import checksum
from anabranch.site.sources.entries import Entry, State
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.judge import Judge, Judged, Parts
from anabranch.site.sources.pace import Pace
from anabranch.site.sources.reading_again import read_again
from anabranch.site.sources.shedder import Shedder
from anabranch.site.tasks.measures import Rate
from anabranch.spark.jvm import NO_JVM, jvm
from anabranch.stream.batch import START_WATERMARK
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
PROMISE_US = 1_000_000
"""Watermarks that the clock moves are promised so far ahead: that many fewer are written."""
PAUSES_S = (0.1, 2.0)
"""Between two attempts at what is away or full: at first, and at most."""


_NOWHERE = State(None, 1)


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
        *,
        synced: bool = False,
    ) -> None:
        """`synced`: the journal outlives the machine's power, too."""
        self.stream = stream
        self.outlet = outlet
        self.state = "waiting"
        self.error: AnabranchError | None = None
        self.failed_at: float | None = None
        self.late = 0
        self.skipped = 0
        self._replayed = 0
        self._to_replay = 0
        self._trouble = ""
        self._stopped = threading.Event()
        self._rate = Rate()
        self._heartbeat_s = heartbeat_s
        self._newest = START_WATERMARK
        self._clock_floor = START_WATERMARK
        self._clock = ArrivalClock()
        self._heard = 0.0
        self._catching_up = True
        """What comes has come before: the clock moves nothing."""
        self._holding = False
        self._lock = threading.Lock()
        self.wrapper = make(self._stopped, self._skip)
        self._releasing = isinstance(self.wrapper, Releasing)
        replayable = isinstance(self.wrapper, Replayable) and self._speed is None
        self._journal = journal if replayable else None
        self._synced = synced
        at_once = getattr(self.wrapper, "replay", False) and self._speed is None
        self._pace = pace if at_once else None
        self._shedder = shedder
        self._judge = Judge(outlet.schema, stream.lateness_us)
        # Only a source's own event times may be wrong.
        self._ahead_us = stream.ahead_us if stream.timestamp else None
        self._thread = threading.Thread(target=self._run, name=f"in-{stream.name}", daemon=True)

    @property
    def finite(self) -> bool:
        return self.wrapper.finite

    @property
    def _problem(self) -> str:
        """Why nothing can come at present; it does again by itself."""
        problem: str = getattr(self.wrapper, "problem", "")
        return problem

    @property
    def _speed(self) -> float | None:
        speed: float | None = getattr(self.wrapper, "speed", None)
        return speed

    def resume(self, position: int) -> None:
        """Before the start: the first tuple given will be the one behind `position`, which must
        have been given before, with all that follow it; if nobody needs any of them, the one
        behind the last. Raises CannotResume if that cannot be."""
        if position == FOREVER:
            position = self._journal.last if self._journal else 0
        if position or (self._journal and self._journal.lacks(0)):
            self._must_cover(position)
        known = self._journal.last if self._journal and self._journal.state else None
        self.outlet.start_at(position, known)
        self._must_not_be_behind()
        self._to_replay = max(0, self._journal.last - position) if self._journal else 0

    def _must_cover(self, position: int) -> None:
        name, journal = self.stream.name, self._journal
        if journal is None:
            raise CannotResume(
                f"stream {name} cannot be resumed: its source cannot be read again",
                remedy="Drop and create the queries that read it.",
            )
        if journal.lacks(position):
            raise CannotResume(
                f"stream {name} cannot be resumed behind {position}: what was read then"
                " is needed no more and has been forgotten",
                remedy="Drop and create the queries that read it.",
            )
        elsewhere = journal.state is None and self._releasing
        if journal.last < position and not elsewhere:
            raise CannotResume(
                f"stream {name} cannot be resumed behind {position}: its journal knows of"
                f" {journal.last} tuples, so others would come under numbers that were given",
                place=journal.place,
                remedy="Start the site with the state folder that it had, or drop the stream and"
                " create it again: that begins anew.",
            )

    def _must_not_be_behind(self) -> None:
        """A journal that has lost its end may reach the restart points and not what readers had
        received: other tuples would come under those numbers, and be dropped there."""
        if found := self.outlet.ahead():
            reader, had, known = found
            raise CannotResume(
                f"stream {self.stream.name} cannot go on: {reader} has had {had} tuples, and the"
                f" journal knows of {known}",
                place=self._journal.place if self._journal else "",
                remedy="Start the site with the state folder that it had, or drop the stream and"
                " create it again: that begins anew.",
            )

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
            "problem": self._trouble or self._problem,
            "rows": self.outlet.last,
            "newest": self._newest,
            "late": self.late,
            "skipped": self.skipped,
            "shed": self._shedder.shed if self._shedder else 0,
            "replayed": self._replayed,
            "to_replay": self._to_replay,
            "rate": self._rate.per_second(time.monotonic()),
        } | (self.wrapper.report() if isinstance(self.wrapper, Releasing) else {})

    def _skip(self, rows: int) -> None:
        self.skipped += rows

    def _run(self) -> None:
        try:
            if self._journal:
                self._again_and_again(partial(self._read, self._journal))
            else:
                self._read_once()
        except Exception as error:
            self._fail(_explained(error))
        else:
            self.state = "stopped" if self._stopped.is_set() else "ended"
            if self.state == "ended":
                self.outlet.end()

    def _again_and_again(self, do: Callable[[], Any]) -> bool:
        """Until it is done; what passes is waited for. False when we are to stop."""
        pause, most = PAUSES_S
        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                do()
            except (SourceAway, StorageError) as error:
                self._trouble = error.line()
                if time.monotonic() - begun > most:
                    pause = PAUSES_S[0]
                self._stopped.wait(pause)
                pause = min(most, 2 * pause)
            else:
                self._trouble = ""
                return True
        return False

    def _read_once(self) -> None:
        self._catching_up = False
        for table in self._paced(self.wrapper.read()):
            self._holding = True
            if not self._give(self._entered(table, _NOWHERE, None)[1]):
                return

    def _read(self, journal: Journal) -> None:
        """What was read before as it was then, and on from there."""
        assert isinstance(self.wrapper, Replayable)
        if not self._replay(journal, self.wrapper):
            return
        state = journal.state or self._begin(self.wrapper)
        if journal.state is None and not self._releasing:
            journal.begin(state)
        self._promise_again(journal, state)
        for table, cursor in self.wrapper.read_from(state.cursor):
            self._holding = True
            given = self.outlet.last + 1 - state.next
            entry, judged = self._entered(table, state, cursor)
            if not self._again_and_again(partial(self._enter, journal, entry)):
                return
            if not self._give(judged, given):
                return
            state = entry.after
            self._again_and_again(lambda: journal.trim(self.outlet.released))
            if self._releasing and isinstance(self.wrapper, Releasing):
                kept = journal.needed(self.outlet.released)
                self.wrapper.release(kept.cursor, kept.next - 1)

    def _begin(self, wrapper: Replayable) -> State:
        """Of a reading that has no journal. If a source that was read elsewhere goes on here, some
        of the tuples that come then have been given before."""
        if not self.outlet.last or not isinstance(wrapper, Releasing):
            return State(wrapper.start_cursor(), 1)
        cursor, position = wrapper.released()
        if position > self.outlet.last:
            raise CannotResume(
                f"it cannot be resumed behind {self.outlet.last}: what it keeps begins behind"
                f" {position}",
                remedy="Drop and create the queries that read it.",
            )
        return State(cursor, position + 1)

    def _promise_again(self, journal: Journal, state: State) -> None:
        """What was promised holds, also for those who have not heard of it."""
        with self._lock:
            self._catching_up = False
            self._newest = state.newest
            self._clock_floor = max(state.floor, journal.promised)
            self._clock.begin_at(max(self._newest, self._clock_floor))
            if self._clock_floor > START_WATERMARK:
                self.outlet.append([], self._judge.watermark(self._newest, self._clock_floor))

    def _entered(self, table: pa.Table, before: State, cursor: Any) -> tuple[Entry, Judged]:
        """What the journal is to know of a table, and its tuples."""
        with self._lock:
            now_us = self._clock.now_us()
            bounded = self._bounded(table, now_us)
            allowed = self._allowed(bounded, now_us)
            judged = self._judged(self._shed(bounded, allowed), now_us)
            after = State(
                cursor, before.next + sum(judged.counts), self._newest, self._clock_floor, now_us
            )
        # What keeps its own results merges them anew, and sums of DOUBLE may differ in a bit.
        checked = self._journal and not self._releasing
        rows = checksum(table) if checked else 0
        return Entry(before, after, len(table), rows, allowed), judged

    def _enter(self, journal: Journal, entry: Entry) -> None:
        with self._lock:
            if journal.state != entry.after:
                journal.add(entry)
            if self._synced:
                journal.sync()

    def _replay(self, journal: Journal, wrapper: Replayable) -> bool:
        """Give what lies behind the outlet's last tuple as the journal knows it."""
        start = self.outlet.last
        entries = journal.since(start)
        for table, group in read_again(wrapper, entries):
            for part, some in self._split(table, group):
                with self._lock:
                    self._newest = some[0].before.newest
                    judged = self._judged_again(part, some)
                    self._clock_floor = some[-1].after.floor
                if not self._give(judged, max(0, start + 1 - some[0].first)):
                    return False
                self._replayed = self.outlet.last - start
        return not self._stopped.is_set()

    def _split(self, table: pa.Table, group: list[Entry]) -> Iterator[tuple[pa.Table, list[Entry]]]:
        """One by one what has to be seen so: what was shed, and what came from the future."""
        if self._shedder is None and self._far(table, group[0].after.now_us) is None:
            yield table, group
            return
        start = 0
        for entry in group:
            part = table.slice(start, entry.rows)
            if (far := self._far(part, entry.after.now_us)) is not None:
                part = part.filter(pa.array(~far))
            yield self._shed(part, entry.allowed), [entry]
            start += entry.rows

    def _judged_again(self, table: pa.Table, entries: list[Entry]) -> Judged:
        rows = [len(table)] if len(entries) == 1 else [entry.rows for entry in entries]
        parts = Parts(
            rows,
            [entry.after.now_us for entry in entries],
            [entry.after.floor for entry in entries],
        )
        judged = self._judge.judged(table, parts, self._newest)
        for entry, count in zip(entries, judged.counts, strict=True):
            if count != entry.count:
                raise CannotResume(
                    f"what was read between {entry.before.cursor} and {entry.after.cursor} gave"
                    f" {entry.count} tuples, and now {count}",
                    remedy="Drop the stream and create it again.",
                )
        self._newest = judged.newest
        self.late += judged.late
        return judged

    def _allowed(self, table: pa.Table, now_us: int) -> int | None:
        return self._shedder.allowed(table, now_us) if self._shedder else None

    def _shed(self, table: pa.Table, allowed: int | None) -> pa.Table:
        if self._shedder is None or allowed is None:
            return table
        return self._shedder.kept(table, allowed)

    def _bounded(self, table: pa.Table, now_us: int) -> pa.Table:
        """Without rows from further in the future than may be, which are malformed."""
        far = self._far(table, now_us)
        if far is None:
            return table
        if not skips(self.stream.source):
            raise far_ahead(table, far, self._ahead_us or 0)
        self._skip(int(far.sum()))
        return table.filter(pa.array(~far))

    def _far(self, table: pa.Table, now_us: int) -> np.ndarray | None:
        return too_far(table, now_us, self._ahead_us)

    def _fail(self, error: AnabranchError) -> None:
        error.message = f"stream {self.stream.name}: {error.message}"
        self.state, self.error, self.failed_at = "failed", error, time.time()
        note("failed", error.line(), wrong=True, site=self.stream.site, query=self.stream.name)

    def _judged(self, table: pa.Table, now_us: int) -> Judged:
        """A table that has just come."""
        parts = Parts([len(table)], [now_us], [self._clock_floor])
        judged = self._judge.judged(table, parts, self._newest)
        self._newest = judged.newest
        self.late += judged.late
        return judged

    def _give(self, judged: Judged, given: int = 0) -> bool:
        """Give tuples their positions, but for the first `given` of them, which have theirs; False
        when we are to stop."""
        self._holding = True
        fresh = judged.table.slice(given)
        pieces = list(record_batches(fresh, PIECE_ROWS))
        for number, piece in enumerate(pieces, 1):
            if self._pace:
                self._pace.wait(self._stopped)
            if not self.outlet.wait_for_room(self._stopped):
                return False
            self._must_not_be_behind()
            with self._lock:
                last = number == len(pieces)
                self.outlet.append([piece], judged.watermark if last else START_WATERMARK)
                self._heard = time.monotonic()
            self._rate.add(self._heard, piece.num_rows)
        self._heard = time.monotonic()
        self._holding = False
        return True

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
        floor = self._idle_floor(idle_us, self._clock.now_us())
        silent = self._catching_up or self._holding or self._trouble or self._problem
        if floor <= self._clock_floor or silent or self.outlet.ended:
            return
        try:
            self._promise(floor)
        except StorageError:  # full for a moment, perhaps; it is promised at another beat
            return
        self._clock_floor = floor
        self.outlet.append([], floor)

    def _promise(self, floor: int) -> None:
        """Keep that nothing below `floor` will come, before anybody hears of it."""
        journal = self._journal
        if journal is None or journal.state is None or floor <= journal.promised:
            return
        journal.promise(math.ceil(floor / PROMISE_US) * PROMISE_US, journal.state)
        journal.trim(self.outlet.released)
        if self._synced:
            journal.sync()

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
