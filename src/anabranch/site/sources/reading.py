"""Turns a source into a numbered stream: first what was read before, exactly as it was then, and
then on from there.

What happens here happens before a tuple has a position, so everything after it is a function of
positions alone. A reading waits for nothing: it says what it needs, and is driven.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch.connectors.source import Source
from anabranch.errors import CannotResume, SourceAway, StorageError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import record_batches
from anabranch.log.stream_log import StreamLog
from anabranch.plan.catalog import StreamDef
from anabranch.site.sources.entries import JournalEntry, ReadingState
from anabranch.site.sources.intake import Intake, Judged
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.pace import Next, Pause, Room, Steps
from anabranch.site.sources.reading_again import read_again
from anabranch.site.tasks.measures import Rate
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.restart import FOREVER

LIVE_US = 60_000_000
"""A source whose newest event time is this close to the clock is live: when it is idle, its
watermark follows the clock. A replay of old data must not be outrun by the clock."""
GRACE_US = 1_000_000
"""A tuple of a live source may take this much longer to come than the one before it. A source that
knows the event time of its next tuple says so in `upcoming` and needs no grace."""
PIECE_ROWS = 65_536
PROMISE_US = 1_000_000
"""Watermarks that the clock moves are promised so far ahead: that many fewer are written."""
PAUSES_S = (0.1, 2.0)
"""Between two attempts at what is away or full: at first, and at most."""
_NOWHERE = ReadingState(None, 1)


@dataclass
class Progress:
    """The facts that a reading reports about itself."""

    trouble: str = ""
    """What it waits for; it goes on by itself."""
    replayed: int = 0
    to_replay: int = 0


class Reading:
    """`run` gives the tuples, once; another thread may call `beat` meanwhile."""

    def __init__(
        self,
        stream: StreamDef,
        outlet: LiveOutlet[Any],
        source: Source,
        intake: Intake,
        journal: Journal | None,
        heartbeat_s: float,
        *,
        ending: Journal | None = None,
        synced: bool = False,
        paced: Callable[[Iterator[pa.Table]], Iterator[pa.Table]] = iter,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`synced` means that the journal outlives the machine's power, too. `paced` holds back the
        tables of a source that is read without a journal; `ending` keeps that it has ended, and
        where.
        """
        self.intake = intake
        self.progress = Progress()
        self.rate = Rate()
        self.heard = 0.0
        """When the last tuple came."""
        self._stream = stream
        self._outlet = outlet
        self._source = source
        self._journal = journal
        self._ending = ending
        self._over = False
        """All that there is had been given before it was resumed."""
        self._heartbeat_s = heartbeat_s
        self._synced = synced
        self._paced = paced
        self._monotonic = monotonic
        self._catching_up = True
        """What comes has come before: the clock moves nothing."""
        self._holding = False
        self._lock = threading.Lock()

    @property
    def problem(self) -> str:
        """Why nothing can come at present; this passes by itself."""
        return self.progress.trouble or self._source.problem

    # -- where it begins -------------------------------------------------------------------------

    @property
    def _reads_on_from_elsewhere(self) -> bool:
        """Whether the source itself knows what was given by a reading at another site."""
        journal = self._journal
        return bool(self._source.releasing and journal and journal.state is None)

    def resume(self, position: int) -> None:
        """Before the start: the first tuple given will be the one after `position`, which must
        have been given before, with all that follow it; if nobody needs any of them, the one
        after the last. What is written for those who come later need not be given again. Raises
        CannotResume if that cannot be."""
        if log := self._outlet.log:
            position = log.last
        if self._ending and self._ending.state and position in (FOREVER, self._ending.last):
            self._over = True
            self._outlet.start_at(self._ending.last)
            return
        if position == FOREVER:
            position = self._journal.last if self._journal else 0
        if log and not self._journal:
            self._go_on_after(log)
        elif position or (self._journal and self._journal.lacks(0)):
            self._must_cover(position)
        is_told = not self._reads_on_from_elsewhere
        known = self._journal.last if self._journal and is_told else log.last if log else None
        self._outlet.start_at(position, known)
        self._must_not_be_behind()
        if self._journal:
            self.progress.to_replay = max(0, self._journal.last - position)

    def _go_on_after(self, log: StreamLog) -> None:
        """Goes on after the log's end, for a source that knows nothing of what came before."""
        promised = log.newest.watermark if log.newest else START_WATERMARK
        self.intake.go_on(ReadingState(None, log.last + 1, log.newest_time), promised)

    def _must_cover(self, position: int) -> None:
        name, journal = self._stream.name, self._journal
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
        if journal.last < position and not self._reads_on_from_elsewhere:
            raise CannotResume(
                f"stream {name} cannot be resumed behind {position}: its journal knows of"
                f" {journal.last} tuples, so others would come under numbers that were given",
                place=journal.place,
                remedy="Start the site with the state folder that it had, or drop the stream and"
                " create it again: that begins anew.",
            )

    def _must_not_be_behind(self) -> None:
        """Raises if the journal has lost its end: it may reach the restart points and not what
        readers had received, and then other tuples would come under those numbers and be dropped
        there.
        """
        if found := self._outlet.ahead():
            reader, had, known = found
            raise CannotResume(
                f"stream {self._stream.name} cannot go on: {reader} has had {had} tuples, and the"
                f" journal knows of {known}",
                place=self._journal.place if self._journal else "",
                remedy="Start the site with the state folder that it had, or drop the stream and"
                " create it again: that begins anew.",
            )

    def _begin(self, source: Source) -> ReadingState:
        """The state where a reading without a journal begins. If a source that was read elsewhere
        goes on here, some of its next tuples have been given before.
        """
        if not self._outlet.last or not source.releasing:
            return ReadingState(source.start_cursor(), 1)
        cursor, position = source.released()
        if position > self._outlet.last:
            raise CannotResume(
                f"it cannot be resumed behind {self._outlet.last}: what it keeps begins behind"
                f" {position}",
                remedy="Drop and create the queries that read it.",
            )
        return ReadingState(cursor, position + 1)

    # -- reading ---------------------------------------------------------------------------------

    def run(self) -> Steps:
        """Reads to the end of the source."""
        if self._over:
            return
        if journal := self._journal:
            yield from self._again_and_again(lambda: self._read(journal))
        else:
            yield from self._read_once()

    def _again_and_again(self, do: Callable[[], Steps | None]) -> Steps:
        """Repeats `do` until it succeeds; it waits for failures that pass."""
        pause, most = PAUSES_S
        while True:
            begun = self._monotonic()
            try:
                yield from do() or ()
            except (SourceAway, StorageError) as error:
                self.progress.trouble = error.line()
                if self._monotonic() - begun > most:
                    pause = PAUSES_S[0]
            else:
                self.progress.trouble = ""
                return
            yield Pause(pause)
            pause = min(most, 2 * pause)

    def _read_once(self) -> Steps:
        self._catching_up = False
        tables = self._paced(self._source.read())
        while (table := (yield Next(tables))) is not None:
            self._holding = True
            yield from self._give(self._entered(table, _NOWHERE, None)[1])
        if ending := self._ending:
            yield Pause(0.0)  # a source that is to stop may have ended early
            yield from self._again_and_again(partial(self._end_here, ending))

    def _end_here(self, ending: Journal) -> None:
        """Keeps where the source has ended, before anybody hears that it has: it cannot be asked
        again, and readers that have had all of it need not wait for it.
        """
        ending.begin(ReadingState(None, self._outlet.last + 1))
        if self._synced:
            ending.sync()

    def _read(self, journal: Journal) -> Steps:
        """Gives what was read before, exactly as it was then, and reads on from there."""
        source = self._source
        yield from self._replay(journal, source)
        state = journal.state or self._begin(source)
        if journal.state is None and not self._source.releasing:
            journal.begin(state)
        self._promise_again(journal, state)
        self.progress.trouble = ""  # the source answers; from now on it says itself when it is away
        tables = source.read_from(state.cursor)
        while (come := (yield Next(tables))) is not None:
            table, cursor = come
            self._holding = True
            given = self._outlet.last + 1 - state.next
            entry, judged = self._entered(table, state, cursor)
            yield from self._again_and_again(partial(self._enter, journal, entry))
            yield from self._give(judged, given)
            state = entry.after
            yield from self._again_and_again(lambda: journal.trim(self._outlet.settled))
            if source.releasing:
                kept = journal.needed(self._outlet.settled)
                source.release(kept.cursor, kept.next - 1)

    def _promise_again(self, journal: Journal, state: ReadingState) -> None:
        """Gives earlier promises again, also for those who have not heard of them."""
        with self._lock:
            self._catching_up = False
            self.intake.go_on(state, journal.promised)
            if self.intake.floor > START_WATERMARK:
                self._outlet.append([], self.intake.watermark)

    def _entered(
        self, table: Any, before: ReadingState, cursor: Any
    ) -> tuple[JournalEntry, Judged]:
        # What keeps its own results merges them anew, and sums of DOUBLE may differ in a bit.
        checked = self._journal is not None and not self._source.releasing
        with self._lock:
            return self.intake.entered(table, before, cursor, checked=checked)

    def _enter(self, journal: Journal, entry: JournalEntry) -> None:
        with self._lock:
            if journal.state != entry.after:
                journal.add(entry)
            if self._synced:
                journal.sync()

    def _replay(self, journal: Journal, source: Source) -> Steps:
        """Gives what lies after the outlet's last tuple as the journal knows it."""
        start = self._outlet.last
        for table, group in read_again(source, journal.since(start)):
            for part, some in self.intake.split(table, group):
                with self._lock:
                    judged = self.intake.again(part, some)
                yield from self._give(judged, max(0, start + 1 - some[0].first))
                self.progress.replayed = self._outlet.last - start
        yield Pause(0.0)  # a source that is to stop may have ended early

    def _give(self, judged: Judged, given: int = 0) -> Steps:
        """Gives tuples their positions, but for the first `given` of them, which have theirs."""
        self._holding = True
        pieces = list(record_batches(judged.table.slice(given), PIECE_ROWS))
        for number, piece in enumerate(pieces, 1):
            yield Room()
            self._must_not_be_behind()
            with self._lock:
                last = number == len(pieces)
                self._outlet.append([piece], judged.watermark if last else START_WATERMARK)
                self.heard = self._monotonic()
            self.rate.add(self.heard, piece.num_rows)
        self.heard = self._monotonic()
        self._holding = False

    # -- the clock -------------------------------------------------------------------------------

    def beat(self) -> None:
        """Lets the watermark of a silent live stream follow the clock."""
        if self._lock.acquire(blocking=False):  # else something is coming
            try:
                self._follow_clock()
            finally:
                self._lock.release()

    def _follow_clock(self) -> None:
        idle_us = int((self._monotonic() - self.heard) * 1e6) if self.heard else 0
        floor = self.idle_floor(idle_us, self.intake.clock.now_us())
        silent = self._catching_up or self._holding or self.problem
        if floor <= self.intake.floor or silent or self._outlet.ended:
            return
        try:
            self._promise(floor)
        except StorageError:  # full for a moment, perhaps; it is promised at another beat
            return
        self.intake.floor = floor
        self._outlet.append([], floor)

    def _promise(self, floor: int) -> None:
        """Keeps that nothing below `floor` will come, before anybody hears of it."""
        journal = self._journal
        if journal is None or journal.state is None or floor <= journal.promised:
            return
        ahead = math.ceil(floor / PROMISE_US) * PROMISE_US
        if (upcoming := self._source.upcoming) is not None:  # it will not be late after a restart
            ahead = max(floor, min(ahead, upcoming - self._stream.lateness_us))
        journal.promise(ahead, journal.state)
        journal.trim(self._outlet.settled)
        if self._synced:
            journal.sync()

    def idle_floor(self, idle_us: int, now_us: int) -> int:
        """The time below which nothing can come any more, by the clock; START_WATERMARK if
        unknown.
        """
        if idle_us < self._heartbeat_s * 1e6 and self.heard:
            return START_WATERMARK
        if self._stream.timestamp is None and not self._source.own_time:
            return now_us
        newest = self.intake.newest
        if not self.heard or abs(now_us - idle_us - newest) >= LIVE_US:
            return START_WATERMARK
        upcoming = self._source.upcoming
        reached = newest + idle_us - GRACE_US if upcoming is None else upcoming
        return min(reached, newest + idle_us) - self._stream.lateness_us
