"""A slower network than the one there is: delay, jitter and bandwidth of a link, for trying out.

Batches are held back at the receiving end. Bandwidth is what one batch after the other occupies;
delay is what each travels, many at a time; order is kept.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from anabranch.stream.batch import Batch

_FLYING = 256
_LOOK_S = 0.2
"""How often a thread that waits for the other looks whether all is over."""


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
    flying: queue.Queue[tuple[float, Batch[pa.RecordBatch] | BaseException | None]]
    flying = queue.Queue(_FLYING)
    arguments = (batches, link, flying, stopped)
    threading.Thread(target=_transmit, args=arguments, name="link-emulation", daemon=True).start()
    while not stopped.is_set():
        try:
            due, item = flying.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
        if stopped.wait(max(0.0, due - time.monotonic())) or item is None:
            return
        if isinstance(item, BaseException):
            raise item
        yield item


def _transmit(
    batches: Iterable[Batch[pa.RecordBatch]],
    link: Emulation,
    flying: queue.Queue[tuple[float, Batch[pa.RecordBatch] | BaseException | None]],
    stopped: threading.Event,
) -> None:
    rng = random.Random(0)
    due = 0.0
    end: BaseException | None = None
    try:
        for batch in batches:
            stopped.wait(link.occupy_s(batch.data.nbytes))
            due = max(due, time.monotonic() + link.travel_s(rng))
            _put(flying, (due, batch), stopped)
    except Exception as error:
        end = error
    _put(flying, (due, end), stopped)
    with suppress(queue.Full):  # whoever waits for more learns at once that it is over
        flying.put_nowait((0.0, None))


def _put(
    flying: queue.Queue[tuple[float, Batch[pa.RecordBatch] | BaseException | None]],
    item: tuple[float, Batch[pa.RecordBatch] | BaseException | None],
    stopped: threading.Event,
) -> None:
    while not stopped.is_set():
        try:
            flying.put(item, timeout=_LOOK_S)
        except queue.Full:
            continue
        return
