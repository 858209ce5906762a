"""One approximate query as its results show it: which windows came, which are damaged, what the
model says.

All of it follows from the table and the catalog, so a restarted coordinator goes on where it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from anabranch.approx.estimate import PROBATION
from anabranch.approx.gaussian import Floats
from anabranch.approx.plan import EstimationPlan, Promise
from anabranch.approx.recovery import Estimation, Recovery, Windows
from anabranch.coordinator.approximate.learning import Lesson
from anabranch.coordinator.approximate.models import LearntModel
from anabranch.coordinator.approximate.results import Estimate, Key, Result
from anabranch.coordinator.approximate.windows import Adopted, Deliveries, Owners, Presence
from anabranch.coordinator.base.reports import ApproximationReport, WorkerReport
from anabranch.plan.approximate import key_text
from anabranch.plan.catalog import ApproximateDef

MOST = 2000
"""Windows that are kept here."""
LEARNING = "bounds are being found"


class ApproximateState:
    """`take` gets results, `due` says which estimations can be made, `estimate` makes one. A
    `lesson` is learnt elsewhere, because that is slow, and then `adopt`ed.
    """

    def __init__(self, query: ApproximateDef) -> None:
        self.made = query
        self.windows = Windows(query.width_us, query.slide_us)
        self.recovery = Recovery(self.windows, len(query.workers), patience=self.least)
        self.adopted: Adopted | None = None
        self.version = 0
        self.estimated = 0
        self.learnt_from = 0
        self.calm = [0] * len(query.workers)
        """By worker: for how many windows in a row it could have been estimated."""
        self._values: dict[int, dict[Key, float]] = defaultdict(dict)
        """By window; what was estimated is missing."""
        self._presence = Presence(self.least * query.slide_us, self.recovery.newest)
        self._deliveries = Deliveries(self.recovery)
        self._first: int | None = None
        self._gaps: set[int] = set()
        """Workers that were silent and are heard again: not all they delivered has been read."""
        self._refreshed = 0

    @property
    def least(self) -> int:
        """The number of whole windows that must exist before anything is promised."""
        return max(48, 12 * self.made.lags)

    @property
    def enough(self) -> int:
        """The number of windows that a key must have been there before it is learnt: the first
        windows of a query may lack some.
        """
        return self.least - self.made.lags

    @property
    def plan(self) -> EstimationPlan | None:
        return self.adopted.plan if self.adopted else None

    # -- what came -------------------------------------------------------------------------------

    def need_since(self, newest: int) -> int:
        """The end from which on there may be results that we do not have; `newest` is the newest in
        the table.
        """
        whole = self.recovery.last_whole
        if whole is None or self._gaps:
            return max(newest - MOST * self.made.slide_us, 0)
        return whole

    def take(self, results: Iterable[Result]) -> None:
        """Takes the results from `need_since` on, in order."""
        for worker in self._gaps:
            self._presence.hear_again(worker)
        silent = self._silent()
        self._take(results)
        self._gaps = silent - self._silent()

    def _silent(self) -> set[int]:
        """The workers without which windows are whole."""
        whole = self.recovery.last_whole or 0
        count = range(len(self.made.workers))
        return {
            n for n in count if self.recovery.newest(n) < whole and not self.recovery.is_dead(n)
        }

    def _take(self, results: Iterable[Result]) -> None:
        owners = Owners(self.made)
        estimated: set[int] = set()
        for result in results:
            self._first = result.end if self._first is None else min(self._first, result.end)
            values = self._values[result.end]
            if result.estimated:
                estimated.add(result.end)
                continue
            values[result.key] = result.value
            if result.stream in owners.places:
                number, stream = owners.of(result)
                home = number if self.made.leaving else owners.worker_of(result.key, number)
                self._presence.take(result.key, home, result.end)
                self._deliveries.add(stream, result)
        self._deliveries.tell(self.made, owners)
        for end in estimated:
            self.recovery.estimated(end)
        self._forget()

    def _forget(self) -> None:
        """Forgets what is too old to be needed again."""
        for end in sorted(self._values)[:-MOST]:
            del self._values[end]
        before = self.need_since(0) - MOST * self.made.slide_us
        self._deliveries.forget(before)
        self._presence.forget(before, self.adopted.keys if self.adopted else ())

    def found(self, worker: int, *, dead: bool) -> None:
        """Takes note that a worker is dead or alive. Results that a dead worker owes are estimated
        from now on, if that is possible.
        """
        if dead and self.estimable(worker):
            self.recovery.died(worker)
        elif not dead:
            self.recovery.revived(worker)

    def replaced(self, query: ApproximateDef) -> None:
        """Takes note that workers have a new generation. While keys are being dealt out again,
        nobody is estimated.
        """
        self.made = query
        self.take(())

    # -- who has which keys ----------------------------------------------------------------------

    def changed(self, assignment: tuple[tuple[str, ...], ...]) -> list[int]:
        """The workers that would get other keys."""
        homes = {key_text(key): worker for key, worker in self._presence.homes.items()}
        moved = {(homes[k], n) for n, keys in enumerate(assignment) for k in keys if k in homes}
        return sorted({number for pair in moved if pair[0] != pair[1] for number in pair})

    def dealt(self, query: ApproximateDef) -> None:
        """Takes note that all windows before the hand-over are out. Bounds are computed again."""
        self.made = query
        owners = Owners(query)
        for key, home in list(self._presence.homes.items()):
            self._presence.move(key, owners.worker_of(key, home))
        self.adopted, self.learnt_from = None, 0
        self.calm = [0] * len(query.workers)

    # -- the model -------------------------------------------------------------------------------

    def whole_windows(self, since: int = 0) -> list[int]:
        newest = self.recovery.last_whole or 0
        return [end for end in sorted(self._values) if since <= end <= newest]

    @property
    def should_learn(self) -> bool:
        """Whether there is twice as much to learn from as the last time, or a new key has been
        there for long enough.
        """
        whole, first = self.recovery.last_whole, self._first
        if self.made.leaving:
            return False
        if whole is None or first is None or (whole - first) // self.made.slide_us + 1 < self.least:
            return False
        keys = self._to_learn()
        count = (whole - max(first, self._oldest(keys))) // self.made.slide_us + 1
        known = self.adopted.knows if self.adopted else lambda key: False
        return count >= 2 * self.learnt_from or not all(
            known(key) for key in keys if self._presence.is_there(key)
        )

    def _to_learn(self) -> list[Key]:
        """The keys of the next lesson."""
        whole = self.recovery.last_whole or 0
        early = whole - (self.enough - 1) * self.made.slide_us
        presence = self._presence
        keys = [k for k in presence.homes if presence.is_known(k) and presence.first(k) <= early]
        return sorted(keys, key=str)

    def _oldest(self, keys: list[Key]) -> int:
        """About the end of the first window with all of these keys: earlier windows say nothing
        about the newest of them. 0 means all windows.
        """
        newest = max(map(self._presence.first, keys), default=0)
        if newest <= (self._first or 0):
            return 0
        return min(newest, (self.recovery.last_whole or 0) - (self.least - 1) * self.made.slide_us)

    def lesson(self) -> Lesson:
        """The input for learning, for the workers as they are."""
        keys = self._to_learn()
        oldest = self._oldest(keys)
        ends = self.whole_windows(oldest)
        workers: list[list[int]] = [[] for _ in self.made.workers]
        for index, key in enumerate(keys):
            workers[self._presence.homes[key]].append(index)
        wanted = self.made.asked
        promise = Promise(wanted.epsilon, wanted.confidence, self.made.lags, wanted.failures)
        return Lesson(promise, keys, workers, oldest, ends[-1], self._matrix(ends, keys))

    def holds(self, lesson: Lesson) -> bool:
        """Whether its keys are still where they were when it began."""
        homes = self._presence.homes
        return not self.made.leaving and all(
            homes.get(lesson.keys[key]) == worker
            for worker, keys in enumerate(lesson.workers)
            for key in keys
        )

    def adopt(self, lesson: Lesson, plan: EstimationPlan, windows: int) -> None:
        """Adopts the plan that was made of a lesson, and the number of its windows."""
        self.adopted = Adopted(plan, lesson.keys)
        self.learnt_from, self._refreshed = windows, lesson.newest
        self.calm = [PROBATION * good for good in plan.estimable]

    def learnt(self) -> LearntModel:
        assert self.adopted is not None
        run = self.made.template.run
        plan, keys = self.adopted.plan, self.adopted.keys
        return LearntModel(self.version, run, self.learnt_from, keys, plan)

    def go_on_with(self, learnt: LearntModel) -> None:
        """Goes on with what was learnt before the coordinator was restarted."""
        self.adopted = Adopted(learnt.plan, learnt.keys)
        self.version, self.learnt_from = learnt.version, learnt.windows
        self.calm = [PROBATION * good for good in learnt.plan.estimable]
        for worker, keys in enumerate(learnt.plan.workers):
            for key in keys:
                self._presence.belongs(learnt.keys[key], worker)

    def refresh(self) -> None:
        """Refreshes the model with each window that has become whole since; each window also checks
        it.
        """
        if self.adopted is None:
            return
        ends = self.whole_windows()
        for place, end in enumerate(ends):
            if end > self._refreshed:
                some = ends[max(place - self.made.lags, 0) : place + 1]
                self.adopted.follow(some, self._matrix(some, self.adopted.keys))
                self._refreshed = end
                self.calm = [
                    (count + 1) * self.estimable(number) for number, count in enumerate(self.calm)
                ]

    def _matrix(self, ends: list[int], keys: list[Key]) -> Floats:
        nan = float("nan")
        return np.array([[self._values[end].get(key, nan) for key in keys] for end in ends])

    # -- who can be estimated --------------------------------------------------------------------

    def estimable(self, worker: int) -> bool:
        return not self._doubt(worker)

    def drifted(self, worker: int) -> bool:
        return self.adopted is not None and not self.adopted.trusts(self._presence.there(worker))

    def wants_standby(self, worker: int, has: bool) -> bool:
        """Whether the worker needs a standby: it cannot be estimated, or could not until a while
        ago.
        """
        if self.plan is None or self.made.leaving or not self._presence.there(worker):
            return has
        return not self.estimable(worker) or (has and self.calm[worker] < PROBATION)

    def _doubt(self, worker: int) -> str:
        """Why it cannot be estimated; empty if it can."""
        keys = self._presence.there(worker)
        if self.made.leaving:
            return "keys are being dealt out anew"
        if self.adopted is None:
            count = len(self.whole_windows())
            return (
                f"{count} of {self.least} windows to learn from" if count < self.least else LEARNING
            )
        if not keys:
            return "it has no keys"
        if new := [key for key in keys if not self.adopted.knows(key)]:
            return self._too_new(new)
        if not self.adopted.trusts(keys):
            return "its keys have changed: estimates were off too often of late"
        return self._reach(keys) if self.adopted.bound(keys) > self.made.asked.epsilon else ""

    def _too_new(self, keys: list[Key]) -> str:
        whole = self.recovery.last_whole or 0
        age = (whole - max(map(self._presence.first, keys))) // self.made.slide_us + 1
        keys_are = "key is" if len(keys) == 1 else "keys are"
        known_windows = min(max(age, 0), self.enough)
        return f"{len(keys)} {keys_are} new: {known_windows} of {self.enough} windows to learn from"

    def _reach(self, keys: list[Key]) -> str:
        assert self.adopted is not None
        bound, epsilon = self.adopted.bound(keys), self.made.asked.epsilon
        return f"off by up to {bound:.3g} {'≤' if bound <= epsilon else '>'} {epsilon:g}"

    # -- estimating ------------------------------------------------------------------------------

    def due(self) -> list[Estimation]:
        return self.recovery.due()

    def estimate(self, estimation: Estimation) -> list[Estimate]:
        """The estimates for those keys of lost workers that are there; a key that is gone needs
        none.
        """
        assert self.adopted is not None
        keys = self.adopted.keys
        window = self._matrix([estimation.end], keys)[0]
        window[[self._presence.homes[key] in estimation.lost for key in keys]] = np.nan
        last = None
        if estimation.last is not None and estimation.last in self._values:
            last = self._matrix([estimation.last], keys)[0]
        estimates = self.adopted.estimate(estimation.lost, window, last, estimation.lag)
        return [estimate for estimate in estimates if self._presence.is_there(estimate.key)]

    def wrote(self, estimation: Estimation, count: int) -> None:
        """Takes note that this many estimates are in the table."""
        self.estimated += count
        self.recovery.estimated(estimation.end)

    def report(self, standbys: Mapping[int, str | None]) -> ApproximationReport:
        """The report. `standbys` maps each worker that should have a standby to the standby's
        site.
        """
        plan, promise = self.plan, self.made.asked
        workers = []
        for number, worker in enumerate(self.made.workers):
            keys = self._presence.there(number)
            bound = self.adopted.bound(keys) if self.adopted and keys else None
            workers.append(
                WorkerReport(
                    query=worker.query,
                    site=worker.site,
                    keys=len(keys),
                    bound=bound,
                    estimable=self.estimable(number),
                    protection=self._protection(number, standbys),
                    why=self._doubt(number) or self._reach(keys),
                    drifted=self.drifted(number),
                    damaged=len(self.recovery.damaged(number)),
                )
            )
        return ApproximationReport(
            within=promise.epsilon,
            confidence=promise.confidence,
            workers=tuple(workers),
            model=self.version,
            learnt_from=self.learnt_from,
            refresh=plan.weight if plan else None,
            estimated=self.estimated,
            recovering=self.recovery.recovering,
        )

    def _protection(self, number: int, standbys: Mapping[int, str | None]) -> str:
        if site := standbys.get(number):
            return f"standby at {site}"
        if self.estimable(number):
            return "estimates"
        return "restart point, until a site can stand by" if number in standbys else "restart point"
