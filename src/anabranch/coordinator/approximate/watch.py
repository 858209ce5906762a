"""Watches over approximate queries: replaces a dead worker, and estimates the results that it
lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import psycopg

from anabranch.connectors.postgres.client import reason
from anabranch.coordinator.approximate.learning import Learning, WorkerChanges
from anabranch.coordinator.approximate.models import Models
from anabranch.coordinator.approximate.results import ApproximateResults
from anabranch.coordinator.approximate.state import ApproximateState
from anabranch.coordinator.approximate.workers import Workers
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import ApproximationReport
from anabranch.coordinator.base.secrets import Secrets
from anabranch.errors import AnabranchError
from anabranch.plan.catalog import ApproximateDef
from anabranch.runtime.loop import supervised

CLOSE_S = 10.0


class Approximations:
    """Runs in a thread of its own, because it waits for the table and for sites. `say` is called
    with replacements and estimates.
    """

    def __init__(
        self,
        catalog: Catalog,
        workers: Workers,
        learning: Learning,
        models: Models,
        say: Callable[[str], None],
        interval_s: float,
        secrets: Secrets,
    ) -> None:
        self._secrets = secrets
        self.models = models
        self._catalog = catalog
        self._workers = workers
        self._learning = learning
        self._say = say
        self._interval_s = interval_s
        self._changes = WorkerChanges(self.wake)
        self._watched: dict[str, tuple[str, ApproximateState, ApproximateResults]] = {}
        self._reports: dict[str, ApproximationReport] = {}
        """As of the last look: before the first, nobody knows whether all is well."""
        self._problems: dict[str, str] = {}
        self._news = threading.Event()
        self._closed = threading.Event()
        self._thread = supervised("approximations", self._run, self._closed)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._news.set()
        self._thread.join(CLOSE_S)
        self._learning.close()
        self._changes.close()
        self.models.close()

    def wake(self) -> None:
        self._news.set()

    def report(self) -> dict[str, ApproximationReport]:
        return {
            name: replace(report, problem=self._problem(name))
            for name, report in self._reports.copy().items()
        }

    def _problem(self, name: str) -> str:
        every = (self._problems, self._changes.problems, self._learning.problems)
        return next((found[name] for found in every if found.get(name)), "")

    def _standbys(self, query: ApproximateDef) -> dict[int, str | None]:
        return {
            number: self._workers.standby(query, number)
            for number in range(len(query.workers))
            if self._workers.has_standby(query, number)
        }

    def _run(self) -> None:
        while not self._closed.is_set():
            known = self._catalog.definitions()
            queries = [one for one in known.values() if isinstance(one, ApproximateDef)]
            for name in set(self._watched) - {one.name for one in queries}:
                del self._watched[name]
                self._reports.pop(name, None)
            for query in queries:
                try:
                    self._look(query)
                    self._problems.pop(query.name, None)
                except AnabranchError as error:
                    self._problems[query.name] = error.line()
                except psycopg.Error as error:
                    self._problems[query.name] = reason(error)
                except Exception as error:  # of one query: the others are watched on
                    self._problems[query.name] = f"{type(error).__name__}: {error}"
            self._news.wait(self._interval_s)
            self._news.clear()

    def _look(self, query: ApproximateDef) -> None:
        state, results = self._state(query)
        if results is None:
            return
        state.made = self._workers.located(state.made)
        state.take(results.since(state.need_since(results.newest())))
        state.refresh()
        self._look_after_workers(state)
        for estimation in state.due():
            if state.plan is None:
                break
            state.wrote(estimation, results.write(estimation.end, state.estimate(estimation)))
            if not state.recovery.recovering:
                self._say(f"{query.name}: all damaged windows are estimated")
        if (learnt := self._learning.done(state.made)) and state.holds(learnt[0]):
            state.adopt(*learnt)
            state.version = self.models.save(query.name, state.learnt())
            self._deal(state)
        self._look_after_dealing(state, results)
        if state.should_learn and not state.recovery.recovering:
            self._learning.begin(state.made, state.lesson())
        self._reports[query.name] = state.report(self._standbys(state.made))

    def _deal(self, state: ApproximateState) -> None:
        """Deals keys out again if more workers could be estimated then. It tries again only when
        twice as much is known as the last time.
        """
        query = state.made
        if query.leaving or state.recovery.recovering or state.learnt_from < 2 * query.dealt:
            return
        learnt = state.learnt()
        better = learnt.better(query.asked)
        if better is None:
            return
        assignment = learnt.as_text(better)
        changed = state.changed(assignment)
        change = partial(self._workers.deal, query, assignment, changed, state.learnt_from)
        self._changes.begin(query, "deal", change)

    def _look_after_dealing(self, state: ApproximateState, results: ApproximateResults) -> None:
        if self._changes.done(state.made, "deal"):
            state.replaced(self._workers.current(state.made))
        if not state.made.leaving:
            return
        if self._changes.done(state.made, "let go"):
            query = self._workers.current(state.made)
            if not query.leaving:
                state.dealt(query)
                return
        if results.newest() >= max(worker.since for worker in state.made.workers):
            self._changes.begin(state.made, "let go", partial(self._workers.let_go, state.made))

    def _look_after_workers(self, state: ApproximateState) -> None:
        """Replaces dead workers that can be estimated, and makes sure that the others have a
        standby.
        """
        for number in range(len(state.made.workers)):
            if self._changes.done(state.made, f"worker {number}"):
                state.replaced(self._workers.current(state.made))
            has = self._workers.has_standby(state.made, number)
            dead = self._workers.is_dead(state.made, number)
            taken_over = has and self._workers.in_hand(state.made, number)
            state.found(number, dead=dead and not taken_over)
            if state.recovery.is_dead(number):
                change = partial(self._workers.replace, state.made, number)
                self._changes.begin(state.made, f"worker {number}", change)
            elif not dead and state.wants_standby(number, has) != has:
                self._workers.protect(state.made, number, wanted=not has)

    def _state(self, query: ApproximateDef) -> tuple[ApproximateState, ApproximateResults | None]:
        """The state of a query. A query that was created again has a new one."""
        watched = self._watched.get(query.name)
        if watched and watched[0] == query.template.run:
            return watched[1], watched[2]
        results = ApproximateResults(self._secrets.filled(query))
        state = ApproximateState(query)
        known = self.models.newest(query.name)
        if known and known.run == query.template.run and known.fits(query.assignment):
            state.go_on_with(known)
        if not results.guard():
            return state, None
        self._watched[query.name] = (query.template.run, state, results)
        return state, results
