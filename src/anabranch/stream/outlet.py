"""Output queue of one stream: numbers tuples, keeps what may still be needed, releases the rest."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Generic

from anabranch.errors import Gap, StaleEpoch
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch, P
from anabranch.stream.restart import RestartPoint


@dataclass(slots=True)
class Consumer:
    """What the outlet knows of one consumer: how far it was sent, has received (Level-0), and no
    longer needs (Level-1), with the restart point that came with the latter. A `local` one is in
    our own process and would die with us, so what it has only received is not safe there."""

    sent: int
    received: int
    released: int
    local: bool = False
    restart: RestartPoint | None = None

    @property
    def safe(self) -> int:
        return self.released if self.local else self.received


class Outlet(Generic[P]):
    """Positions are dense from `start + 1`. Without consumers nothing is kept, unless `whole`:
    then everything is, for those who come later."""

    def __init__(self, stream: str, start: int = 0, epoch: int = 0, *, whole: bool = False) -> None:
        self.stream = stream
        self.whole = whole
        self.epoch = epoch
        self.last = start
        self.released = start
        self.watermark = START_WATERMARK
        self.consumers: dict[str, Consumer] = {}
        self._kept: list[Batch[P]] = []
        self._lasts: list[int] = []
        self._ends: list[int] = []  # bytes ever kept, counted up to the end of each kept batch
        self._bytes = 0
        self._released_bytes = 0

    @property
    def ended(self) -> bool:
        return self.watermark == END_WATERMARK

    @property
    def kept_bytes(self) -> int:
        return self._bytes - self._released_bytes

    def append(self, data: P, watermark: int) -> Batch[P]:
        """Number the tuples of `data` and keep them. `watermark` holds behind them."""
        if self.ended:
            raise ValueError(f"stream {self.stream} has ended")
        self.watermark = max(self.watermark, watermark)
        batch = Batch(self.stream, self.last + 1, self.watermark, self.epoch, data)
        if batch.rows:
            self.last = batch.last
            if self.consumers or self.whole:
                self._keep(batch)
            else:
                self.released = self.last
        return batch

    def _keep(self, batch: Batch[P]) -> None:
        self._bytes += batch.data.nbytes
        self._kept.append(batch)
        self._lasts.append(batch.last)
        self._ends.append(self._bytes)

    def advance(self, watermark: int) -> bool:
        """Raise the watermark without a tuple; False if it does not rise."""
        if watermark <= self.watermark:
            return False
        self.watermark = watermark
        return True

    def attach(self, consumer: str, *, after: int | None = None, local: bool = False) -> int:
        """Keep tuples for `consumer` from now on, or from behind `after` if they are still there;
        returns the position it starts behind."""
        known = self.consumers.get(consumer)
        if known is None:
            start = self.last if after is None else max(after, self.released)
            self.consumers[consumer] = Consumer(start, start, start, local)
            return start
        return known.received

    def detach(self, consumer: str) -> None:
        self.consumers.pop(consumer, None)
        self._release()

    def read(self, after: int) -> Batch[P] | None:
        """The first kept batch with tuples behind `after`, cut to them; None if there is none yet.

        Raises Gap if tuples behind `after` were released already.
        """
        if after < self.released:
            raise Gap(f"stream {self.stream}: {after + 1} was asked for, {self.released} released")
        index = bisect_right(self._lasts, after)
        return self._kept[index].after(after) if index < len(self._kept) else None

    def sent(self, consumer: str, position: int) -> None:
        if consumer in self.consumers:
            self.consumers[consumer].sent = position

    def unsent_bytes(self) -> int:
        """Bytes the slowest consumer was not sent yet: what back-pressure goes by."""
        if not self.consumers:
            return 0
        slowest = min(consumer.sent for consumer in self.consumers.values())
        index = bisect_right(self._lasts, slowest)
        return self._bytes - (self._ends[index - 1] if index else self._released_bytes)

    def level0(self, consumer: str, position: int, epoch: int) -> int:
        """`consumer` has received everything up to `position`; returns what all have received.

        Raises StaleEpoch if the consumer already follows a later producer than this one.
        """
        if epoch > self.epoch:
            raise StaleEpoch(
                f"stream {self.stream}: consumer {consumer} is at epoch {epoch}, we at {self.epoch}"
            )
        known = self.consumers.get(consumer)
        if known is not None:
            known.received = max(known.received, position)
        return self.acknowledged()

    def level1(self, consumer: str, input_position: int, point: RestartPoint) -> int:
        """`consumer` needs nothing up to `input_position` any more and would restart at `point`;
        returns up to where this outlet has now released. An ack overtaken by a newer one changes
        nothing."""
        known = self.consumers.get(consumer)
        if known is not None and _newer(known, input_position, point):
            known.received = max(known.received, input_position)
            known.released = input_position
            known.restart = point
        self._release()
        return self.released

    def acknowledged(self) -> int:
        """The position up to which the stream is safe with every consumer."""
        return min((c.safe for c in self.consumers.values()), default=self.last)

    def _release(self) -> None:
        if self.whole:
            return
        floor = min((c.released for c in self.consumers.values()), default=self.last)
        index = bisect_right(self._lasts, floor)
        if index:
            self._released_bytes = self._ends[index - 1]
            del self._kept[:index], self._lasts[:index], self._ends[:index]
        self.released = max(self.released, floor)


def _newer(known: Consumer, input_position: int, point: RestartPoint) -> bool:
    """Points of a task with several inputs may differ in the others' positions alone."""
    before = known.restart.output if known.restart else point.output
    return (input_position, point.output) >= (known.released, before)
