"""Turns a source into a stream: the thread that drives a reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from anabranch.connectors.source import Source
from anabranch.errors import AnabranchError, SourceError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import SourceReport
from anabranch.plan.catalog import StreamDef
from anabranch.runtime.log import note, print_trace
from anabranch.site.sources.intake import ArrivalClock, Intake
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.pace import Need, Next, Pace, Pause, Room, Steps, at_speed, beats
from anabranch.site.sources.reading import Reading
from anabranch.site.sources.shedder import Shedder
from anabranch.spark.jvm import NO_JVM, jvm


class SourceStream(Protocol):
    """A source's stream, a table's changes, or a stream that a pocket or program fills."""

    outlet: LiveOutlet[Any]
    error: AnabranchError | None

    def resume(self, position: int) -> None:
        """Sets, before the start, the position after which it goes on. Raises SourceError if that
        is impossible.
        """

    def start(self) -> None: ...

    def close(self) -> None: ...

    def report(self) -> SourceReport: ...


class Ingest:
    """States: `waiting` → `running` → `ended` | `failed` | `stopped`."""

    def __init__(
        self,
        stream: StreamDef,
        outlet: LiveOutlet[Any],
        make: Callable[[threading.Event, Callable[[int], None]], Source],
        heartbeat_s: float,
        journal: Journal | None = None,
        pace: Pace | None = None,
        shedder: Shedder | None = None,
        *,
        synced: bool = False,
    ) -> None:
        """`synced` means that the journal outlives the machine's power, too."""
        self.stream = stream
        self.outlet = outlet
        self.state = "waiting"
        self.error: AnabranchError | None = None
        self.failed_at: float | None = None
        self.skipped = 0
        self._stopped = threading.Event()
        self._heartbeat_s = heartbeat_s
        self._shedder = shedder
        self.source = make(self._stopped, self._skip)
        speed = self.source.speed
        again = self.source.replayable and speed is None
        self._journal = journal
        self._pace = pace if self.source.historic and speed is None else None
        outlet.waits_for_absent = self._pace is not None
        intake = Intake(stream, outlet.schema, shedder, self._skip, ArrivalClock())
        paced = iter if speed is None else partial(at_speed, speed=speed, stopped=self._stopped)
        self.reading = Reading(
            stream,
            outlet,
            self.source,
            intake,
            journal if again else None,
            heartbeat_s,
            ending=None if again else journal,
            synced=synced,
            paced=paced,
        )
        self._thread = threading.Thread(target=self._run, name=f"in-{stream.name}", daemon=True)

    @property
    def finite(self) -> bool:
        return self.source.finite

    @property
    def late(self) -> int:
        return self.reading.intake.late

    def resume(self, position: int) -> None:
        self.reading.resume(position)

    def start(self) -> None:
        """Starts to read, at the first call only: a stream is read once, from when it first has a
        consumer.
        """
        if self.state == "waiting":
            self.state = "running"
            self._thread.start()
            if not self.source.historic:
                beats.every(self._heartbeat_s, self._beat)

    def close(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self.source.close()
        if self._journal:
            self._journal.close()
        if self._shedder:
            self._shedder.close()

    def report(self) -> SourceReport:
        reading, progress = self.reading, self.reading.progress
        news = self.source.report()
        return SourceReport(
            stream=self.stream.name,
            site=self.stream.site,
            state=self.state,
            finite=self.finite,
            error=self.error.report() if self.error else None,
            failed_at=self.failed_at,
            problem=reading.problem,
            rows=self.outlet.last,
            newest=reading.intake.newest,
            late=news.late if news else self.late,
            skipped=news.skipped if news else self.skipped,
            shed=self._shedder.shed if self._shedder else 0,
            replayed=progress.replayed,
            to_replay=progress.to_replay,
            rate=reading.rate.per_second(time.monotonic()),
            stage=news.stage if news else None,
        )

    def _skip(self, rows: int) -> None:
        self.skipped += rows

    def _beat(self) -> bool:
        """Whether it may be called again."""
        if self._stopped.is_set() or self.state != "running":
            return False
        self.reading.beat()
        return True

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._drive(self.reading.run())
        except Exception as error:
            self._fail(_explained(error))
        else:
            self.state = "stopped" if self._stopped.is_set() else "ended"
            if self.state == "ended":
                self.outlet.end()

    def _drive(self, steps: Steps) -> None:
        """Drives the steps to their end, or until we are to stop."""
        try:
            need = next(steps)
            while not self._stopped.is_set():
                try:
                    answer = self._get(need)
                except Exception as error:
                    need = steps.throw(error)
                else:
                    if isinstance(need, Room) and not answer:
                        return
                    need = steps.send(answer)
        except StopIteration:
            pass
        finally:
            steps.close()

    def _get(self, need: Need) -> Any:
        match need:
            case Next():
                return next(need.tables, None)
            case Pause():
                self._stopped.wait(need.seconds)
                return None
            case Room():
                if self._pace:
                    self._pace.wait(self._stopped)
                return self.outlet.wait_for_room(self._stopped)

    def _fail(self, error: AnabranchError) -> None:
        error.message = f"stream {self.stream.name}: {error.message}"
        self.state, self.error, self.failed_at = "failed", error, time.time()
        note("failed", error.line(), wrong=True, site=self.stream.site, query=self.stream.name)


def _explained(error: Exception) -> AnabranchError:
    if how := jvm.end(error.__cause__ or error):
        return SourceError(f"Spark's JVM has ended ({how})", remedy=NO_JVM)
    if isinstance(error, AnabranchError):
        return error
    print_trace(error)
    return SourceError(f"{type(error).__name__}: {error}")
