"""A stream without a wrapper: a pocket or a program fills it."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import AnabranchError, SourceError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import BORN, EVENT_TIME, record_batches
from anabranch.plan.catalog import StreamDef
from anabranch.site.sources.beats import beats
from anabranch.site.tasks.measures import Rate
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.restart import FOREVER

PIECE_ROWS = 65_536
ROOM_S = 5.0
"""How long a push waits for consumers that are behind."""


class OpenStream:
    """States: `open` → `ended`. Once a pocket gives its output here, programs may not.

    The first push decides whether event times are the program's, all of them, or those of arrival;
    the latter let the clock move the watermark while nothing is pushed.
    """

    def __init__(self, stream: StreamDef, outlet: LiveOutlet, heartbeat_s: float) -> None:
        self.stream = stream
        self.outlet = outlet
        self.pocket: str | None = None
        self.error: AnabranchError | None = None
        self._timed: bool | None = None
        self._newest = START_WATERMARK
        self._late = 0
        self._rate = Rate()
        self._counted = 0
        self._heartbeat_s = heartbeat_s
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._beating = False

    @property
    def state(self) -> str:
        return "ended" if self.outlet.ended else "open"

    @property
    def finite(self) -> bool:
        """Whether anyone may wait for its end: a program says so by ending it."""
        return self.outlet.ended

    def resume(self, position: int) -> None:
        if position == FOREVER:  # nobody needs what was pushed
            position = 0
        self.outlet.start_at(position)
        self._counted = position

    def start(self) -> None:
        """It has begun when it was made."""

    def close(self) -> None:
        self._stopped.set()

    def schema(self) -> pa.Schema:
        """Of what is pushed; `_ts` may be left out."""
        kept = [field for field in self.outlet.schema if field.name != BORN]
        return pa.schema(kept)

    def push(self, table: pa.Table) -> bool:
        """Append rows of `schema()`, all or none: False if there is no room for them yet."""
        self._check(table)
        if not self.outlet.wait_for_room(self._stopped, ROOM_S):
            return False
        with self._lock:
            if self.outlet.ended:
                raise SourceError(f"stream {self.stream.name} has ended")
            timely, watermark = self._judged(table, time.time_ns() // 1000)
            self.outlet.append(record_batches(timely, PIECE_ROWS), watermark)
        return True

    def end(self) -> None:
        """No tuple will follow."""
        self._refuse_beside_pocket()
        with self._lock:
            self.outlet.end()

    def _refuse_beside_pocket(self) -> None:
        if self.pocket:
            raise SourceError(
                f"stream {self.stream.name} is filled by pocket {self.pocket}",
                remedy="Push into a stream of your own.",
            )

    def _check(self, table: pa.Table) -> None:
        self._refuse_beside_pocket()
        timed = EVENT_TIME in table.schema.names
        expected = self.schema() if timed else self.schema().remove(len(self.schema()) - 1)
        if table.schema != expected:
            raise SourceError(
                f"stream {self.stream.name} takes {_shown(expected)}, not {_shown(table.schema)}"
            )
        with self._lock:
            if self._timed is None:
                self._timed = timed
                self._follow_clock()
            if self._timed != timed:
                raise SourceError(
                    f"stream {self.stream.name}: rows with {EVENT_TIME} and without are mixed",
                    remedy="Give it in all rows or in none.",
                )

    def _judged(self, table: pa.Table, now_us: int) -> tuple[pa.Table, int]:
        """The rows that are not late, with their times, and the watermark behind them."""
        born = pa.array(np.full(len(table), now_us), pa.int64())
        if not self._timed:
            self._newest = max(now_us, self._newest)  # a clock that is set back makes none late
            times = pa.array(np.full(len(table), self._newest), pa.int64())
            return pa.table([*table.columns, times, born], schema=self.outlet.schema), self._newest
        lateness, times = self.stream.lateness_us, table.column(EVENT_TIME).to_numpy()
        newest = np.maximum.accumulate(np.concatenate(([self._newest], times)))
        late = times < np.maximum(newest[:-1], START_WATERMARK + lateness) - lateness
        self._newest = int(newest[-1])
        self._late += int(late.sum())
        timely = pa.table([*table.columns, born], schema=self.outlet.schema)
        watermark = max(self._newest, START_WATERMARK + lateness) - lateness
        return timely.filter(pa.array(~late)), min(watermark, END_WATERMARK - 1)

    def _follow_clock(self) -> None:
        if not (self._timed or self._beating):
            self._beating = True
            beats.every(self._heartbeat_s, self._beat)

    def _beat(self) -> bool:
        """Windows over a stream that is pushed into now and then must close in between too."""
        if self._stopped.is_set() or self.outlet.ended:
            return False
        if self._lock.acquire(blocking=False):  # else something is coming
            try:
                if not (self.pocket or self.outlet.ended):
                    self._newest = max(self._newest, time.time_ns() // 1000)
                    self.outlet.append([], self._newest)
            finally:
                self._lock.release()
        return True

    def _count(self) -> float:
        """Tuples a second, whoever gives them: reports are asked for every second or so, by one
        thread at a time. Our lock is not for it: who has that waits for the runtime, in which
        reports are made."""
        now = time.monotonic()
        new, self._counted = self.outlet.last - self._counted, self.outlet.last
        self._rate.add(now, new)
        return self._rate.per_second(now)

    def report(self) -> dict[str, Any]:
        return {
            "stream": self.stream.name,
            "site": self.stream.site,
            "state": self.state,
            "finite": self.finite,
            "error": None,
            "rows": self.outlet.last,
            "late": self._late,
            "skipped": 0,
            "rate": self._count(),
        }


def encoded(table: pa.Table) -> str:
    """As it is sent in the body of an action."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(out.getvalue()).decode()


def decoded(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
