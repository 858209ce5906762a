"""A query's results on their way out: a task that waits for the place it writes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.connectors.sink import ANEW, Beginning, Continued, Sink
from anabranch.errors import (
    AnabranchError,
    Fenced,
    ProtocolError,
    SinkAway,
    SinkBehind,
    SinkError,
)
from anabranch.link.reports import Delay, TaskReport
from anabranch.link.wire import EVENT_TIME, POSITION, wire_schema
from anabranch.plan.expressions import spelled
from anabranch.runtime.log import note
from anabranch.runtime.troubles import Backoff
from anabranch.site.tasks.body import Produced, Taken
from anabranch.site.tasks.task import Task
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.restart import RestartPoint

PASSING = Backoff(0.2, 10.0)
FINAL = Backoff(5.0, 60.0)
"""Trying again gives the same, unless a person has done something about it."""
HANGS_S = 5.0
"""A call that takes longer is told of."""


class SinkBody:
    """Hands tuples to a sink with their positions. Nothing written is needed again.

    After an error, a sink that knows what it has is made and opened again before the next step, and
    given what it lacks.
    """

    def __init__(
        self, make: Callable[[bool], Sink], columns: pa.Schema, *, resume: bool = False
    ) -> None:
        """`make` gives the sink, to go on where it was if that is asked for. A body that is to
        `resume` makes and opens it in its first step, which may wait for whatever is away; any
        other body raises errors at once.
        """
        self._make = make
        self._resume = resume
        self._sink = None if resume else make(False)
        self._continued: Continued | None = None
        self.begin: Beginning = ANEW
        """What the next opening tells the sink."""
        self.is_refused = False
        """The last step ended when it was to be opened: nothing of it was tried."""
        self._abandoned = False
        self._input = wire_schema(columns)
        self._columns = columns.names

    @property
    def is_open(self) -> bool:
        return self._continued is not None

    def open(self, instant: int = START_WATERMARK) -> None:
        if not self._resume:
            self._opened()

    def reopen(self, instant: int) -> None:
        """Does nothing: what is written is written; it is skipped by its positions."""

    def warm_up(self) -> bool:
        return False

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = taken.table(self._input)
        continued = self._opened()
        if len(table):
            first = taken.batches[0].first
            known = continued.holds(first, len(table))
            table = table.slice(known)
            self._write(continued.sink, table, first + known)
        if taken.watermark == END_WATERMARK:
            continued.sink.close()
        safe = max(self.begin.after, _safe(continued.sink, taken.last))
        self.begin = replace(self.begin, after=safe, without=ANEW.without)
        return Produced(table, taken.watermark, (safe,))

    def _opened(self) -> Continued:
        if self._continued is None:
            self.is_refused = True
            if self._sink is None:
                self._sink = self._make(self._resume)
            if self._abandoned:
                raise SinkAway("it is dropped")
            continued = Continued(self._sink)
            continued.open(self.begin)
            self._continued, self._resume, self.is_refused = continued, True, False
        return self._continued

    def _write(self, sink: Sink, table: pa.Table, first: int) -> None:
        if not len(table):
            return
        positions = pa.array(np.arange(first, first + len(table), dtype=np.int64))
        table_out = table.select([*self._columns, EVENT_TIME])
        at = len(self._columns)
        try:
            sink.write(table_out.add_column(at, pa.field(POSITION, pa.int64()), positions))
        except Exception:
            # What it has by now, it says when it is opened; unless it has taken rows for later.
            if sink.resumable and not sink.deferred:
                self._continued = self._sink = None
                with suppress(Exception):
                    sink.close()
            raise

    def go_on_without(self, lacks: tuple[int, int]) -> None:
        """A person has said that these positions may be missing."""
        self.begin = replace(self.begin, without=lacks)

    def abandon(self) -> None:
        """Called from another thread: as far as possible, nothing is written any more."""
        self._abandoned = True
        if sink := self._sink:
            sink.abandon()

    def close(self) -> None:
        if sink := self._sink:
            sink.close()


def _spoken(lacks: tuple[int, int]) -> str:
    first, last = lacks
    return f"result {first:,}" if first == last else f"results {first:,} to {last:,}"


def _safe(sink: Sink, last: int) -> int:
    """The position up to which nothing that was taken is needed again."""
    return sink.settle() if sink.deferred else last


@dataclass(frozen=True)
class Away:
    """Why nothing can be written at present; `since` is by the runtime's clock."""

    error: AnabranchError
    since: float
    tries: int
    again_at: float


class SinkTask(Task):
    """While its place is away it keeps what it has taken and takes nothing more, so that the tasks
    before it wait as well; and it tries again without end. It does the same if its place cannot be
    opened: only a person can decide to throw results away.

    An error of the results, not of the place, would come again: then it fails as any task does.
    """

    away: Away | None = None
    _held: list[Taken] | None = None

    async def start(self, point: RestartPoint, epoch: int = 0, patience: Any = None) -> None:
        if isinstance(self._body, SinkBody):
            self._body.begin = Beginning(epoch, point.output)
        await super().start(point, epoch, patience)
        if self.state == "running":
            self._owner.consider(self)  # to open it, though nothing may come for long

    def ready(self) -> bool:
        if self.busy or self.state != "running":
            return False
        if self.away:
            return self._runtime.now() >= self.away.again_at
        return self._closed_still or super().ready()

    @property
    def _closed_still(self) -> bool:
        return not getattr(self._body, "is_open", True)

    def take(self, allowed_us: int | None = None) -> list[Taken] | None:
        with self._runtime:
            if self._held is None:
                return super().take(allowed_us)
            if not self.ready():
                return None
            self.busy, self._ran_s = True, 0.0
            held, self._held = self._held, None
            return held

    def give(self, taken: Sequence[Taken], produced: Produced | AnabranchError) -> None:
        with self._runtime:
            if isinstance(produced, AnabranchError) and self._waits_for(produced):
                self._hold(taken, produced)
                return
            self._goes_on(produced)
        super().give(taken, produced)

    def _waits_for(self, error: AnabranchError) -> bool:
        if self.state != "running" or isinstance(error, Fenced | ProtocolError):
            return False
        refused = isinstance(error, SinkBehind) or getattr(self._body, "is_refused", False)
        return error.passes or refused

    async def go_on_without(self, first: int, last: int) -> None:
        """A person gives up results that were acknowledged and that the sink has lost: just these.
        Raises SinkError if it does not lack them."""
        await self.settled()
        away, body = self.away, self._body
        error = away.error if away else None
        if away is None or not isinstance(error, SinkBehind) or not isinstance(body, SinkBody):
            raise SinkError(
                f"query {self.spec.query} does not wait for results that its sink has lost",
                remedy="`anabranch status` says what it waits for.",
            )
        if error.lacks != (first, last):
            raise SinkError(
                f"what is missing is {_spoken(error.lacks)}, not {_spoken((first, last))}",
                remedy=self._remedy(error),
            )
        body.go_on_without(error.lacks)
        self._note("goes on", f"without {_spoken(error.lacks)}, as a person has said")
        self.away = replace(away, again_at=self._runtime.now())
        self._owner.consider(self)

    def _remedy(self, error: SinkBehind) -> str:
        first, last = error.lacks
        name = spelled(self.spec.query)
        return (
            "Put them back from a backup if there is one; then, or without them, write"
            f" RESUME QUERY {name} WITHOUT {first} TO {last};"
        )

    def _hold(self, taken: Sequence[Taken], error: AnabranchError) -> None:
        """Holds the tuples, which still count against the room of the inlet they came from."""
        if isinstance(error, SinkBehind):
            error.remedy = self._remedy(error)
        now, before = self._runtime.now(), self.away
        tries = before.tries + 1 if before else 1
        pauses = PASSING if error.passes else FINAL
        pause_s = pauses.pause_s(tries, f"{self.spec.name} {self.spec.site}")
        self._held = list(taken)
        self.away = Away(error, before.since if before else now, tries, now + pause_s)
        if before is None or before.error.line() != error.line():
            self._note("sink away", f"{error.line()}", wrong=True)
        self._rest()
        self._runtime.later(pause_s + 0.001, self._owner.consider, self)

    def _goes_on(self, produced: Produced | AnabranchError) -> None:
        if (away := self.away) and not isinstance(produced, AnabranchError):
            self.away = None
            seconds = self._runtime.now() - away.since
            self._note(
                "sink back", f"query {self.spec.query} is written again after {seconds:.0f} s"
            )

    def _note(self, event: str, text: str, *, wrong: bool = False) -> None:
        spec = self.spec
        note(event, text, wrong=wrong, site=spec.site, query=spec.query, task=spec.name)

    def ran(self, seconds: float, limit_s: float) -> None:
        """What is written to has limits of its own; that it hangs is told long before."""
        if self.busy:
            self._ran_s += seconds

    def abandon(self) -> None:
        """Abandons an instance that hangs: as far as possible, it writes nothing any more."""
        if isinstance(self._body, SinkBody):
            self._body.abandon()

    async def close(self) -> None:
        with self._runtime:
            if self._held is not None:
                self._held = None
                for inlet in self._taken_from:
                    inlet.done()
        await super().close()

    def report(self) -> TaskReport:
        report = super().report()
        if (away := self.away) is None:
            hangs = self.busy and self._ran_s > HANGS_S
            silent = Delay("what it writes to does not answer", True, self._ran_s)
            return replace(report, away=silent) if hangs else report
        error = away.error
        delay = Delay(error.line(), error.passes, round(self._runtime.now() - away.since, 1))
        held = sum(one.rows for one in self._held or ())
        final = None if error.passes else error.report()
        return replace(report, away=delay, queue=report.queue + held, error=final)
