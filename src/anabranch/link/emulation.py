"""A slower network than the one there is: delay, jitter and bandwidth of a link, for trying out.

Batches are held back at the receiving end. Bandwidth is what one batch after the other occupies;
delay is what each travels, many at a time; order is kept.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from anabranch.stream.batch import Batch

FLYING_BYTES = 10_000_000
_LOOK_S = 0.2
"""How often a thread that waits for the other looks whether all is over."""

_Item: TypeAlias = tuple[float, Batch[pa.RecordBatch] | BaseException | None]
"""When it arrives, and what: a batch, or the end, with its reason."""


@dataclass(frozen=True)
class Emulation:
    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.delay_s or self.jitter_s or self.bytes_per_s)

    def travel_s(self, rng: random.Random) -> float:
        return self.delay_s + rng.uniform(0, self.jitter_s)

    def occupy_s(self, nbytes: int) -> float:
        return nbytes / self.bytes_per_s if self.bytes_per_s else 0.0


def slowed(
    batches: Iterable[Batch[pa.RecordBatch]], link: Emulation, stopped: threading.Event
) -> Iterator[Batch[pa.RecordBatch]]:
    """The same batches, each no earlier than the link would deliver it."""
    flight = _Flight(stopped)
    arguments = (batches, link, flight, stopped)
    threading.Thread(target=_transmit, args=arguments, name="link-emulation", daemon=True).start()
    try:
        while not stopped.is_set():
            due, item = flight.next()
            if stopped.wait(max(0.0, due - time.monotonic())) or item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        flight.over()


class _Flight:
    """What is under way: at most about FLYING_BYTES, since who sends takes for delivered what is
    not; then sending waits, as it would on a real link."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._over = False
        self._items: deque[_Item] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def send(self, due: float, batch: Batch[pa.RecordBatch]) -> bool:
        """False when nobody waits for it any more."""
        with self._changed:
            while self._bytes >= FLYING_BYTES and not self._ended:
                self._changed.wait(_LOOK_S)
            self._bytes += batch.data.nbytes
            self._items.append((due, batch))
            self._changed.notify_all()
            return not self._ended

    def end(self, due: float, error: BaseException | None) -> None:
        """After what is under way. Whoever waits for more learns at once that it is over."""
        with self._changed:
            self._items.append((due, error))
            self._changed.notify_all()

    def next(self) -> _Item:
        """The oldest; None, at once, when all is over."""
        with self._changed:
            while not self._items:
                if self._ended:
                    return 0.0, None
                self._changed.wait(_LOOK_S)
            due, item = self._items.popleft()
            if isinstance(item, Batch):
                self._bytes -= item.data.nbytes
                self._changed.notify_all()
            return due, item

    def over(self) -> None:
        with self._changed:
            self._over = True
            self._items.clear()
            self._changed.notify_all()

    @property
    def _ended(self) -> bool:
        return self._over or self._stopped.is_set()


def _transmit(
    batches: Iterable[Batch[pa.RecordBatch]],
    link: Emulation,
    flight: _Flight,
    stopped: threading.Event,
) -> None:
    rng = random.Random(0)
    due = 0.0
    end: BaseException | None = None
    try:
        for batch in batches:
            stopped.wait(link.occupy_s(batch.data.nbytes))
            due = max(due, time.monotonic() + link.travel_s(rng))
            if not flight.send(due, batch):
                return
    except Exception as error:
        end = error
    flight.end(due, end)
