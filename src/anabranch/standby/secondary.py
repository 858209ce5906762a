"""The standby of a task: what it was shipped, and where it begins again when a shipment leaves a
gap.

A shipment may leave a gap, since tuples that were released before they were shipped never come. The
point that comes with it lies after the gap, so the task begins again there, with what was shipped
after that point on all its inputs. Everything after a point is kept here until the point has moved
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

from anabranch.errors import Gap, StaleEpoch
from anabranch.stream.batch import START_WATERMARK, Batch, P
from anabranch.stream.restart import RestartPoint


@dataclass(frozen=True, slots=True)
class Feed(Generic[P]):
    """Tells the task to take the next tuples of input `index`."""

    index: int
    batch: Batch[P]


@dataclass(frozen=True, slots=True)
class Restart(Generic[P]):
    """Tells the task to forget its state and outputs, and to begin at `point` with `kept`, per
    input in order.
    """

    point: RestartPoint
    kept: tuple[tuple[Batch[P], ...], ...]


Action = Feed[P] | Restart[P]


@dataclass(frozen=True, slots=True)
class Claim:
    """A producer's answer to a task's claim: what it has released on the word of the task's last
    primary, and that primary's restart point.
    """

    released: int
    restart: RestartPoint | None


@dataclass(slots=True)
class _Input(Generic[P]):
    received: int
    epoch: int = 0
    newest: Batch[P] | None = None
    """The newest watermark came with it; it may be empty."""
    kept: list[Batch[P]] = field(default_factory=list)

    def forget(self, position: int) -> None:
        """Forgets what lies up to `position`, which nobody needs any more."""
        while self.kept and self.kept[0].last <= position:
            self.kept.pop(0)
        if self.kept and self.kept[0].first <= position:
            self.kept[0] = self.kept[0].after(position)

    def add(self, batch: Batch[P]) -> Batch[P]:
        fresh = batch.after(self.received)
        if fresh.rows:
            self.kept.append(fresh)
            self.received = fresh.last
        if self.newest is None or batch.watermark > self.newest.watermark:
            self.newest = fresh.after(fresh.last)
        return fresh

    def replay(self) -> tuple[Batch[P], ...]:
        late = self.newest
        if late is None or late.watermark == START_WATERMARK or late.first != self.received + 1:
            return tuple(self.kept)
        return (*self.kept, late)


class Secondary(Generic[P]):
    """Stands by from `point` on: the task has begun there, and nothing was shipped yet."""

    def __init__(self, point: RestartPoint) -> None:
        self.point = point
        """The newest point known: the task never needs what lies before."""
        self._inputs: list[_Input[P]] = [_Input(position) for position in point.inputs]

    @property
    def received(self) -> tuple[int, ...]:
        """The last position of each input; the input may be followed after it."""
        return tuple(one.received for one in self._inputs)

    @property
    def kept(self) -> int:
        return sum(batch.rows for one in self._inputs for batch in one.kept)

    def offer(
        self, index: int, batch: Batch[P], taken: Sequence[int] | None = None
    ) -> list[Action[P]]:
        """Takes a shipment or heartbeat of input `index`. If the task is idle, `taken` says how far
        it has come on each input. Raises StaleEpoch if its producer has been replaced, Gap if it
        does not join up and no point lies after the gap.
        """
        input_ = self._inputs[index]
        if batch.epoch < input_.epoch:
            raise StaleEpoch(f"stream {batch.stream}: epoch {batch.epoch} after {input_.epoch}")
        input_.epoch = batch.epoch
        if batch.point:
            self._learn(batch.point)
        if batch.first > input_.received + 1:
            self._require(index, batch.first - 1, batch.stream)
        elif not self._overtaken(taken):
            return [Feed(index, input_.add(batch))]
        self._skip()
        input_.add(batch)
        return [self._restart()]

    def learn(self, point: RestartPoint, taken: Sequence[int] | None) -> list[Action[P]]:
        """Learns of a `point` that a producer was told; `taken` as in `offer`."""
        self._learn(point)
        if not self._overtaken(taken):
            return []
        self._skip()
        return [self._restart()]

    def take_over(
        self, claims: Sequence[Claim], taken: Sequence[int] | None = None
    ) -> list[Action[P]]:
        """Takes over once the producers of all inputs have agreed, which release nothing more.
        Afterwards each is followed after `received`. Raises Gap if a producer lacks tuples and no
        point lies after them.
        """
        for claim in claims:
            if claim.restart:
                self._learn(claim.restart)
        behind = False
        for index, (input_, claim) in enumerate(zip(self._inputs, claims, strict=True)):
            if input_.received < claim.released:
                self._require(index, claim.released, f"input {index + 1}")
                behind = True
        if not (behind or self._overtaken(taken)):
            return []
        self._skip()
        return [self._restart()]

    def _overtaken(self, taken: Sequence[int] | None) -> bool:
        """Whether the point has overtaken all that the task has taken, and some of what waits for
        it: then it is less work to begin at the point.
        """
        if taken is None:
            return False
        pairs = list(zip(self.point.inputs, taken, strict=True))
        return all(p >= t for p, t in pairs) and any(p > t for p, t in pairs)

    def _learn(self, point: RestartPoint) -> None:
        """Moves the point on. Producers were told points at different times, perhaps by different
        runs of the task.
        """
        self.point = self.point.join(point)
        for input_, position in zip(self._inputs, self.point.inputs, strict=True):
            input_.forget(position)

    def _require(self, index: int, needed: int, what: str) -> None:
        """Raises Gap unless the newest point lies after what nobody can send any more."""
        if self.point.inputs[index] < needed:
            raise Gap(
                f"{what}: {self.point.inputs[index] + 1} to {needed} were let go of, though the"
                f" newest restart point needs them"
            )

    def _skip(self) -> None:
        """Expects what lies after the newest point, on all inputs."""
        for input_, position in zip(self._inputs, self.point.inputs, strict=True):
            if input_.received < position:
                input_.received = position
                input_.kept.clear()

    def _restart(self) -> Restart[P]:
        return Restart(self.point, tuple(one.replay() for one in self._inputs))
