"""What the windows that came say: which ones workers have delivered, which keys there are, and
how the plan in use does by them.

A key is *there* if its worker's last window has it; other keys are not estimated. A key that has
been away for a while is forgotten: if it comes back, it is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from anabranch.approx.calibration import lost_residuals
from anabranch.approx.estimate import Estimator, Trust
from anabranch.approx.gaussian import Floats
from anabranch.approx.plan import EstimationPlan
from anabranch.approx.recovery import Recovery
from anabranch.coordinator.approximate.results import Estimate, Key, Result
from anabranch.plan.approximate import key_text
from anabranch.plan.catalog import ApproximateDef, Generation


class Owners:
    """Which worker's part a row belongs to, by the query's workers and their generations."""

    def __init__(self, query: ApproximateDef) -> None:
        self._made = query
        self.places = {
            generation.query: (number, place)
            for number, worker in enumerate(query.workers)
            for place, generation in enumerate(worker.generations)
        }
        """Query → its worker, and which generation of that it is."""
        self._assigned = {text: n for n, keys in enumerate(query.assignment) for text in keys}

    def worker_of(self, key: Key, otherwise: int) -> int:
        """The worker that the key is assigned to; for a key without one, `otherwise`, which its
        hash gives.
        """
        return self._assigned.get(key_text(key), otherwise)

    def of(self, result: Result) -> tuple[int, str]:
        """The worker and its query. While keys are handed over, old and new queries both deliver
        the later windows; whichever is first, it counts for the new query.
        """
        number, place = self.places[result.stream]
        after = self._after(number, place)
        if after is None or not after.handed or result.end < after.since:
            return number, result.stream
        number = self.worker_of(result.key, number)
        every = reversed(self._made.workers[number].generations)
        return number, next((g.query for g in every if g.since <= result.end), result.stream)

    def _after(self, number: int, place: int) -> Generation | None:
        generations = self._made.workers[number].generations
        return generations[place + 1] if place + 1 < len(generations) else None


class Deliveries:
    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._came: dict[str, dict[int, set[Key]]] = defaultdict(lambda: defaultdict(set))
        self._told: set[tuple[str, int]] = set()

    def add(self, stream: str, result: Result) -> None:
        self._came[stream][result.end].add(result.key)

    def forget(self, before: int) -> None:
        """Forgets windows that end before this time."""
        for came in self._came.values():
            for end in [end for end in came if end < before]:
                del came[end]
        self._told = {(stream, end) for stream, end in self._told if end < 0 or end >= before}

    def tell(self, query: ApproximateDef, owners: Owners) -> None:
        """Tells the recovery what it has not heard. For queries that take keys over, nothing before
        the hand-over is complete: the old ones may deliver it later.
        """
        events: list[tuple[int, int, str]] = []
        new = {worker.query for worker in query.workers if worker.generations[-1].handed}
        for stream in owners.places.keys() - (new if query.leaving else set()):
            newest = max(self._came[stream], default=0)
            for end, keys in self._came[stream].items():
                if (stream, end) not in self._told and (end < newest or self._whole(stream, keys)):
                    events.append((end, 0, stream))
        for number, worker in enumerate(query.workers):
            for before, after in zip(worker.generations, worker.generations[1:], strict=False):
                if not after.handed and (after.query, -1) not in self._told:
                    last = max(self._came[before.query], default=0)
                    events.append((last, 1 + number, after.query))
        for end, kind, stream in sorted(events):
            number, place = owners.places[stream]
            self._told.add((stream, -1 if kind else end))
            if kind:
                self._recovery.died(number)
                since = query.workers[number].generations[place].since
                self._recovery.replaced(number, since - query.width_us)
            else:
                self._recovery.delivered(number, end)

    def _whole(self, stream: str, keys: set[Key]) -> bool:
        """Whether these are all of a worker's keys, compared with those it had before; for its
        first window nobody knows.
        """
        earlier = [seen for seen in self._came[stream].values() if seen is not keys]
        return bool(earlier) and keys >= set().union(*earlier[-3:])


class Presence:
    """`behind` is how long (µs) a key may be away before it is forgotten. `newest` is the end of a
    worker's last whole window.
    """

    def __init__(self, behind: int, newest: Callable[[int], int]) -> None:
        self.homes: dict[Key, int] = {}
        """Key → the worker that delivers it."""
        self._keys: dict[int, set[Key]] = defaultdict(set)
        """By worker."""
        self._behind = behind
        self._newest = newest
        self._first: dict[Key, int] = {}
        self._last: dict[Key, int] = {}

    def belongs(self, key: Key, worker: int) -> None:
        self._keys[self.homes.setdefault(key, worker)].add(key)

    def move(self, key: Key, worker: int) -> None:
        """Takes note that another worker delivers the key from now on."""
        if key in self.homes:
            self._keys[self.homes.pop(key)].discard(key)
        self.belongs(key, worker)

    def take(self, key: Key, worker: int, end: int) -> None:
        """Takes note that the worker delivered the key in the window that ends at `end`. It may be
        called again with the same facts.
        """
        self.belongs(key, worker)
        last = self._last.get(key)
        if last is None or end > last + self._behind:
            self._first[key] = end
        self._last[key] = end if last is None else max(last, end)

    def hear_again(self, worker: int) -> None:
        """Takes note that all facts about this worker's keys are going to be told again, oldest
        first.
        """
        for key in self._keys[worker] & self._last.keys():
            self._last[key] = -1 - self._behind

    def first(self, key: Key) -> int:
        """The end of the window with which it came."""
        return self._first.get(key, 0)

    def is_there(self, key: Key) -> bool:
        """Whether the key is there. If nothing has been heard of it because its worker was just
        started, it counts as there.
        """
        return key not in self._last or self._last[key] >= self._newest(self.homes[key])

    def is_known(self, key: Key) -> bool:
        """Whether the key is there, or has not been away for long."""
        last = self._last.get(key)
        return last is None or last + self._behind >= self._newest(self.homes[key])

    def there(self, worker: int) -> list[Key]:
        return [key for key in self._keys[worker] if self.is_there(key)]

    def forget(self, before: int, kept: Iterable[Key]) -> None:
        """Forgets keys that have not come since `before`, but for `kept`."""
        old = {key for key, last in self._last.items() if last < before} - set(kept)
        for key in old:
            self._keys[self.homes.pop(key)].discard(key)
            del self._first[key], self._last[key]


class Adopted:
    """`keys` are the plan's columns."""

    def __init__(self, plan: EstimationPlan, keys: list[Key]) -> None:
        self.plan = plan
        self.keys = keys
        self._places = {key: place for place, key in enumerate(keys)}
        promise = plan.promise
        self._trust = Trust(len(keys), promise.lags, promise.epsilon, promise.confidence)
        self._clean: dict[int, Floats] = {}
        """The newest windows, less glitches."""
        self._estimator: Estimator | None = None

    def knows(self, key: Key) -> bool:
        return key in self._places

    def bound(self, keys: Iterable[Key]) -> float:
        """The largest error of estimates for those of these keys that it knows."""
        return float(self.plan.bounds[self._of(keys)].max(initial=0.0))

    def trusts(self, keys: Iterable[Key]) -> bool:
        """Whether the promise that held on history has held lately."""
        return bool(self._trust.trusted[self._of(keys)].all())

    def _of(self, keys: Iterable[Key]) -> list[int]:
        return [self._places[key] for key in keys if key in self._places]

    def follow(self, ends: list[int], windows: Floats) -> None:
        """Follows whole windows, of which the last is new; estimates of it from the earlier ones
        are checked, if there are as many as overlap.
        """
        model = self.plan.model
        row = model.without_glitches(windows[-1])
        self._clean = {end: self._clean[end] for end in ends if end in self._clean}
        self._clean[ends[-1]] = row
        if len(ends) > self.plan.promise.lags:
            self._check(ends, windows)
        if self.plan.weight:
            self.plan = replace(self.plan, model=model.refreshed(row[None], self.plan.weight))

    def _check(self, ends: list[int], windows: Floats) -> None:
        """Checks how far estimates of the last window would have been off, made after each of the
        others.
        """
        plan = self.plan
        clean = np.array(
            [self._clean.get(end, row) for end, row in zip(ends, windows, strict=True)]
        )
        residuals = lost_residuals(plan.model, plan.workers, windows, clean)
        before, now = np.nan_to_num(residuals[-2::-1]), residuals[-1]
        off = np.abs(now - plan.calibration.memory * before)
        self._trust.take(off, plan.calibration.by_lag)

    def estimate(
        self, lost: Iterable[int], window: Floats, last: Floats | None, lag: int
    ) -> list[Estimate]:
        """The estimates for every key of `lost` workers. What is computed ahead for a model serves
        all windows that are estimated by it.
        """
        if self._estimator is None or self._estimator.plan is not self.plan:
            self._estimator = Estimator(self.plan)
        estimates = self._estimator.estimate(sorted(lost), window, last, max(lag, 1))
        bounds: Floats = estimates.bounds * self._trust.width[estimates.keys]
        return [
            Estimate(self.keys[index], float(value), float(bound))
            for index, value, bound in zip(estimates.keys, estimates.values, bounds, strict=True)
        ]
