"""All that runs as a problem of the deadline program: what tasks cost, how many tuples come, and
when results are due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from anabranch.deadline.problem import DeadlineOutput, DeadlineProblem, DeadlineSource, Operator
from anabranch.plan.catalog import QueryDef
from anabranch.plan.costs import GUESSED, IDLE_WAVE_S, Measured
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.service_levels import Deadline
from anabranch.plan.tasks import TaskSpec, sink_task

WAVE = 0.25
"""The part of the shortest deadline whose tuples an instance is taken to hold: they wait that long
at most for each other."""
Free = Mapping[str, tuple[str, ...]]
"""Tasks that may be at one of these sites."""
Latency = Mapping[tuple[str, str], float]
"""Seconds from one site to another, of pairs that were measured."""


class Workload:
    """All definitions in `known`, with their measurements; `slots` by site."""

    def __init__(
        self,
        known: Definitions,
        measured: Measured,
        slots: Mapping[str, int],
        latency: Latency | None = None,
    ) -> None:
        self._known = known
        self._measured = measured
        self._slots = slots
        self._latency = latency or {}
        self.tasks = {one.name: one for one in tasks(known.values(), known)}

    @cached_property
    def deadlines(self) -> dict[str, Deadline]:
        """The deadlines, by query."""
        return {
            one.name: one.deadline
            for one in self._known.values()
            if isinstance(one, QueryDef) and one.deadline
        }

    @cached_property
    def made(self) -> dict[str, str]:
        """Stream → the task that produces it."""
        return {one.output: one.name for one in self.tasks.values() if one.output}

    def guessed(self) -> list[TaskSpec]:
        """Tasks on the way to a deadline whose cost nobody knows, though Spark could tell."""
        return [
            one
            for one in map(self.tasks.__getitem__, self.waves())
            if one.operators and self._measured.cost(one, self._known).why == GUESSED
        ]

    def problem(
        self, free: Free | None = None, shares: Mapping[str, float] | None = None
    ) -> DeadlineProblem:
        """The problem: every task is an operator, at its site or at one of those that it is `free`
        to be at; every deadline is an output. A free sink goes along with its query: both are one
        operator then. `shares` are the fractions of sources' input that come.
        """
        free = free or {}
        rates = self.rates(shares or {})
        along = {
            one.inputs[0].stream: one
            for one in self.tasks.values()
            if one.sink and one.name in free
        }
        streams = {
            one.stream: one.site
            for task in self.tasks.values()
            for one in task.inputs
            if one.stream not in self.made
        }
        operators = self._operators(free, along, rates)
        sites = {site for one in operators for site in one.sites} | set(streams.values())
        return DeadlineProblem(
            sites={site: self._slots.get(site, 1) for site in sorted(sites)},
            sources=tuple(
                DeadlineSource(name, site, rates[name]) for name, site in streams.items()
            ),
            operators=operators,
            outputs=tuple(
                DeadlineOutput(name, name if name in along else self.last(name), deadline.us / 1e6)
                for name, deadline in self.deadlines.items()
            ),
            latency=self._latency,
        )

    def last(self, query: str) -> str:
        """The last task on the way of a query's results."""
        sink = sink_task(query)
        return sink if sink in self.tasks else query

    def waves(self, *, best_effort: bool = True, to: str | None = None) -> dict[str, float]:
        """Task → how long tuples may wait for each other: by the shortest deadline after it, or by
        that of the query `to`. `best_effort` says whether best-effort deadlines count.
        """
        waves: dict[str, float] = {}
        for name, deadline in self.deadlines.items():
            if (deadline.best_effort and not best_effort) or name != (to or name):
                continue
            waiting = [self.last(name)]
            while waiting:
                task = waiting.pop()
                wave = WAVE * deadline.us / 1e6
                if waves.get(task, wave + 1) > wave:
                    waves[task] = wave
                    reads = (self.made.get(one.stream) for one in self.tasks[task].inputs)
                    waiting += [one for one in reads if one]
        return waves

    def rates(self, shares: Mapping[str, float] | None = None) -> dict[str, float]:
        """Tuples a second of every stream; where nothing was measured, as many come out as go in.
        With less input, there are proportionally fewer.
        """
        rates: dict[str, float] = {}
        usual = self.rates() if shares else {}

        def rate(stream: str) -> float:
            if stream not in rates:
                rates[stream] = 0.0  # a pocket may read what it makes
                rates[stream] = self._rate(stream, rate, usual, shares or {})
            return rates[stream]

        for task in self.tasks.values():
            for one in task.inputs:
                rate(one.stream)
            if task.output:
                rate(task.output)
        return rates

    def _rate(
        self,
        stream: str,
        rate: Callable[[str], float],
        usual: Mapping[str, float],
        shares: Mapping[str, float],
    ) -> float:
        maker = self.made.get(stream)
        if maker is None:
            return self._measured.rate(stream, self._known) * shares.get(stream, 1.0)
        inputs = [one.stream for one in self.tasks[maker].inputs if not one.table]
        comes = sum(map(rate, inputs))
        if stream not in self._measured.rates:
            return comes
        before = sum(usual[one] for one in inputs) if usual else 0.0
        return self._measured.rate(stream, self._known) * (comes / before if before else 1.0)

    def _operators(
        self, free: Free, along: Mapping[str, TaskSpec], rates: Mapping[str, float]
    ) -> tuple[Operator, ...]:
        waves = self.waves()
        hard = self.waves(best_effort=False)
        found: list[Operator] = []
        for task in self.tasks.values():
            if along.get(task.inputs[0].stream) is task:
                continue
            sites = free.get(task.name, (task.site,))
            one = self._operator(task, waves.get(task.name), rates, sites, task.name in hard)
            sink = along.get(task.output or "")
            if sink:
                more = self._operator(sink, waves.get(sink.name), rates, sites, sink.name in hard)
                one = replace(one, cost=one.cost + more.cost, load=one.load + more.load)
            found.append(one)
        return tuple(found)

    def _operator(
        self,
        task: TaskSpec,
        wave_s: float | None,
        rates: Mapping[str, float],
        sites: tuple[str, ...],
        counts: bool,
    ) -> Operator:
        """The operator of a task. Its load `counts` if a deadline that is no best effort needs it:
        all others get the rest of a site.
        """
        cost = self._measured.cost(task, self._known)
        rate = sum(rates[one.stream] for one in task.inputs if not one.table)
        wave = wave_s or IDLE_WAVE_S
        inputs = tuple(dict.fromkeys(self.made.get(one.stream, one.stream) for one in task.inputs))
        return Operator(
            task.name,
            max(1e-6, cost.of(max(1.0, rate * wave))),
            inputs,
            sites,
            load=counts * cost.load(rate, wave),
            traffic=max(1e-9, rates.get(task.output or "", rate)),
        )
