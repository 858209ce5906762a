"""Recovery of a query whose keys are split over workers: which windows a death damages, which
estimates are due and from what, and when all is well again. Section 4.2 of the approx paper.

Pure: events come in as calls, decisions come out. Windows are known by their end; one of width w
that ends at e holds the event times in [e − w, e).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Windows:
    width: int
    slide: int

    def first_whole(self, instant: int) -> int:
        """The end of the first window that starts at `instant` or after it."""
        starts = -(-instant // self.slide) * self.slide
        return starts + self.width

    def after(self, end: int) -> int:
        return end + self.slide

    def between(self, first: int, behind: int) -> list[int]:
        """The ends of windows from `first` on, before `behind`."""
        return list(range(first, behind, self.slide))


@dataclass(frozen=True)
class Estimation:
    """Asks to estimate the keys of `lost` workers in the window that ends at `end`. `last` is the
    newest window before it that all workers delivered, None if there is none; `lag` counts from it.
    """

    end: int
    lost: frozenset[int]
    last: int | None
    lag: int


@dataclass
class _Worker:
    delivered: int | None = None
    """The end of its newest window."""
    begins: int | None = None
    """Windows that end before this, and that nobody had delivered when its replacement began, are
    damaged."""
    damaged: set[int] = field(default_factory=set)
    """Ends of windows that it will not deliver and that have not been estimated."""
    dead: bool = False

    def delivers(self, end: int) -> bool:
        """Whether it has delivered this window, or is going to."""
        return self.begins is None or end >= self.begins or end <= (self.delivered or end - 1)

    def has(self, end: int) -> bool:
        return self.delivered is not None and self.delivered >= end


class Recovery:
    """The master's view of one query.

    `delivered`, `died` and `replaced` tell it what happened; `due` says which estimations can be
    made now; `estimated` tells it that one has been written. The windows that a dead worker owes
    are estimated as soon as the others have delivered them, whether or not it has been replaced:
    its replacement begins after them. A window is kept until every worker's part is out. The last
    whole window is kept too; nothing before `last_whole` is needed.

    A worker without keys delivers nothing, and nobody can tell it from a slow one. A worker that is
    `patience` windows late is *silent*: windows are whole without it, and others are estimated from
    what there is. It may still deliver what it owes at any time.
    """

    def __init__(
        self,
        windows: Windows,
        workers: int,
        first: int | None = None,
        patience: int | None = None,
    ) -> None:
        """`first` is the end of the first window; None stands for the first window that anybody
        delivers. If `patience` is None, no worker is ever silent.
        """
        self.windows = windows
        self._first = first
        self._patience = patience
        self._workers = [_Worker() for _ in range(workers)]
        self._whole: int | None = None
        self._estimated: set[int] = set()
        """Windows since the last whole one with estimates."""

    @property
    def recovering(self) -> bool:
        return any(worker.dead or worker.damaged for worker in self._workers)

    @property
    def last_whole(self) -> int | None:
        return self._whole

    def newest(self, worker: int) -> int:
        """The end of the newest window that it delivered; 0 if there is none."""
        return self._workers[worker].delivered or 0

    def damaged(self, worker: int) -> list[int]:
        return sorted(self._workers[worker].damaged)

    def is_dead(self, worker: int) -> bool:
        return self._workers[worker].dead

    def delivered(self, worker: int, end: int) -> None:
        """Takes note that a worker's results of the window that ends at `end` are in the sink.
        Windows come in order; one may come again.
        """
        state = self._workers[worker]
        self._first = end if self._first is None else min(self._first, end)
        state.damaged.discard(end)
        if state.delivered is None or end > state.delivered:
            state.delivered = end
        self._find_whole()

    def died(self, worker: int) -> None:
        self._workers[worker].dead = True

    def revived(self, worker: int) -> None:
        """Takes note that it was not dead, or has come back by itself: it goes on where it was."""
        self._workers[worker].dead = False

    def replaced(self, worker: int, instant: int) -> int:
        """Takes note that a replacement has all input from event time `instant` on. It will deliver
        windows from the returned end on; earlier windows that the dead worker has not delivered are
        damaged.
        """
        state = self._workers[worker]
        first = self.windows.first_whole(instant)
        start = self._owes_from(state)
        if start is not None:
            state.damaged |= set(self.windows.between(start, first)) - self._estimated
        state.dead = False
        state.begins = max(first, state.begins or first)
        return first

    def _owes_from(self, worker: _Worker) -> int | None:
        """The first window that it was to deliver and has not; None if there has been none."""
        if worker.delivered is None:
            return worker.begins or self._first
        return max(self.windows.after(worker.delivered), worker.begins or 0)

    def due(self) -> list[Estimation]:
        """The estimations that can be made now: the damaged windows that all others have delivered,
        or have lost themselves. Oldest first.
        """
        ends = {end for worker in self._workers for end in worker.damaged}
        newest = min((self._out_to(one) for one in self._heard() if not one.dead), default=0)
        for worker in self._workers:
            start = self._owes_from(worker) if worker.dead else None
            if start is not None:
                ends |= set(self.windows.between(start, newest + 1)) - self._estimated
        return [estimation for end in sorted(ends) if (estimation := self._estimation(end))]

    def _out_to(self, worker: _Worker) -> int:
        """Up to this end its part is in the sink, or damaged."""
        return max(worker.delivered or 0, (worker.begins or 0) - self.windows.slide)

    def _heard(self) -> list[_Worker]:
        """All workers that are not silent."""
        if self._patience is None or self._first is None:
            return self._workers
        oldest = max(map(self._out_to, self._workers)) - self._patience * self.windows.slide
        start = self._first - self.windows.slide
        return [
            one
            for one in self._workers
            if one.dead or one.damaged or max(self._out_to(one), start) >= oldest
        ]

    def _estimation(self, end: int) -> Estimation | None:
        lost = frozenset(i for i, worker in enumerate(self._workers) if self._lost(worker, end))
        for worker in self._heard():
            if not self._lost(worker, end) and worker.delivers(end) and not worker.has(end):
                return None  # still to come
        last = self._whole if self._whole is not None and self._whole < end else None
        return Estimation(
            end, lost, last, 0 if last is None else (end - last) // self.windows.slide
        )

    def _lost(self, worker: _Worker, end: int) -> bool:
        return end in worker.damaged or (
            worker.dead and worker.delivers(end) and not worker.has(end)
        )

    def estimated(self, end: int) -> None:
        """Takes note that the lost keys of this window are in the sink."""
        self._estimated.add(end)
        for worker in self._workers:
            worker.damaged.discard(end)

    def _find_whole(self) -> None:
        """Finds the newest window that every worker has delivered, and before which nothing is
        damaged: an estimate is never taken for a measured value.
        """
        if self.recovering:
            return
        heard = self._heard()
        newest = min(worker.delivered or 0 for worker in heard)
        if all(newest >= (worker.begins or 1) for worker in heard) and newest > (self._whole or 0):
            self._whole = newest
            self._estimated = {end for end in self._estimated if end > newest}
