"""Looks at the system once a second, for all viewers.

Reads what the sites' heartbeats brought anyway: a viewer costs the sites nothing. A slow subscriber
misses moments, and delays nobody.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.face.events import Difference, differences, remembered
from anabranch.face.model import Snapshot
from anabranch.face.snapshot import snapshot
from anabranch.face.stories import Chronicle, Event
from anabranch.runtime.loop import supervised

INTERVAL_S = 1.0
HISTORY = 600
"""Moments that are kept for charts: ten minutes."""
_SLOW = 16
"""Moments that a slow subscriber may be behind before it misses some."""

Look = Callable[[], SystemStatus]


class Moment:
    """What a subscriber gets: the system now, and the events since the moment before."""

    def __init__(self, snapshot: Snapshot, events: list[Event]) -> None:
        self.snapshot = snapshot
        self.events = events


class Watch:
    """`look` returns the coordinator's status from what it has received, without asking anyone."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._chronicle = Chronicle()
        self._lock = threading.Lock()
        self._subscribers: set[tuple[asyncio.AbstractEventLoop, asyncio.Queue[Moment]]] = set()
        self._stopped = threading.Event()
        self.now = self._known = Snapshot(at=time.time())
        self.history: deque[Snapshot] = deque(maxlen=HISTORY)
        self._first = True
        self._thread = supervised("the dashboard's watch", self._run, self._stopped)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    @property
    def events(self) -> list[Event]:
        return self._chronicle.events

    def tell(self, *found: Difference) -> None:
        """Adds an event that no report shows, such as a statement."""
        with self._lock:
            new = self._chronicle.add(time.time(), found)
            self._publish(Moment(self.now, new))

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[asyncio.Queue[Moment]]:
        queue: asyncio.Queue[Moment] = asyncio.Queue(_SLOW)
        mine = (asyncio.get_running_loop(), queue)
        with self._lock:
            self._subscribers.add(mine)
        try:
            yield queue
        finally:
            with self._lock:
                self._subscribers.discard(mine)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.step()
            self._stopped.wait(INTERVAL_S)

    def step(self) -> None:
        """Looks once. What exists at the first look is no news."""
        after = snapshot(self._look(), time.time())
        with self._lock:
            differences_: Iterable[Difference] = (
                () if self._first else differences(self._known, after)
            )
            self._first = False
            self.now = after
            self._known = remembered(self._known, after)
            self.history.append(after)
            self._publish(Moment(after, self._chronicle.add(after.at, differences_)))

    def _publish(self, moment: Moment) -> None:
        for loop, queue in self._subscribers:
            loop.call_soon_threadsafe(_offer, queue, moment)


def _offer(queue: asyncio.Queue[Moment], moment: Moment) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(moment)
