"""Task instances on sites, one processor each, in virtual time: earliest deadline first or FIFO.

Times are in microseconds. An instance holds one or more tuples and takes them through its task's
operators, one operator after the other; what an operator gives is handed on once all of the
instance's tuples have passed it. A more urgent instance interrupts a less urgent one at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

Cost = Callable[[str, int], int]
"""(site, plain cost) → what it takes this time."""


class Policy(Enum):
    EDF = "EDF"
    FIFO = "FIFO"


@dataclass(frozen=True)
class Step:
    """One operator: `cost` a tuple. Of `every` tuples one is let through, the first of them."""

    operator: str
    cost: int
    every: int = 1


@dataclass(frozen=True)
class ScheduledTask:
    """It begins when all of `inputs` have brought a wave's tuples."""

    name: str
    site: str
    steps: tuple[Step, ...]
    deadline: int
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Tuple:
    """`born` is when it entered the system, `wave` what it is joined by."""

    born: int
    wave: int = 0


@dataclass(frozen=True)
class Result:
    operator: str
    born: int
    done: int


@dataclass
class _Instance:
    task: ScheduledTask
    tuples: list[Tuple]
    arrival: int
    step: int = 0
    next: int = 0
    kept: list[Tuple] = field(default_factory=list)
    left: int | None = None
    """What is left of the tuple at hand, if it was interrupted."""


@dataclass
class _Site:
    queue: list[tuple[int, int, int, _Instance]] = field(default_factory=list)
    running: tuple[int, int, int, _Instance] | None = None
    since: int = 0
    turn: int = 0
    """Rises whenever something else runs, so that an end foreseen earlier is known to be void."""


class Schedule:
    """`arrive` what comes from sources, then `run`."""

    def __init__(
        self,
        tasks: tuple[ScheduledTask, ...],
        policy: Policy,
        cost: Cost = lambda site, cost: cost,
        phase: int = 0,
    ) -> None:
        self._readers: dict[str, list[ScheduledTask]] = {}
        for task in tasks:
            for name in task.inputs:
                self._readers.setdefault(name, []).append(task)
        self._sites = {task.site: _Site() for task in tasks}
        self._policy = policy
        self._cost = cost
        self._phase = phase
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._passed: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], dict[str, list[Tuple]]] = {}
        self._now = 0
        self.results: list[Result] = []

    def arrive(self, source: str, tuples: list[Tuple], at: int) -> None:
        """They enter the queues of the tasks that read `source`, as one instance."""
        self._at(at, lambda: self._hand_on(source, tuples))

    def run(self, start: int) -> list[Result]:
        """From `start` on: what came earlier waits in its queue until then."""
        while self._events:
            at, _, action = heapq.heappop(self._events)
            self._now = at
            action()
            waits = not self._events or self._events[0][0] > self._now
            if waits and (self._now >= start or not self._events or self._events[0][0] > start):
                self._now = max(self._now, start)
                for site in self._sites.values():
                    self._dispatch(site)
        return self.results

    def _at(self, at: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, action))

    def _hand_on(self, operator: str, tuples: list[Tuple]) -> None:
        self.results += [Result(operator, one.born, self._now) for one in tuples]
        for task in self._readers.get(operator, ()):
            if ready := self._joined(task, operator, tuples):
                self._queue(_Instance(task, ready, self._now))

    def _joined(self, task: ScheduledTask, operator: str, tuples: list[Tuple]) -> list[Tuple]:
        """All of a wave, once every input has brought its part; it counts from the last."""
        if len(task.inputs) == 1 or not tuples:
            return tuples
        wave = tuples[0].wave
        waiting = self._waiting.setdefault((task.name, wave), {})
        waiting[operator] = tuples
        if len(waiting) < len(task.inputs):
            return []
        born = max(one.born for part in waiting.values() for one in part)
        return [Tuple(born, wave)]

    def _queue(self, instance: _Instance) -> None:
        self._count += 1
        oldest = min(one.born for one in instance.tuples)
        due = instance.arrival + instance.task.deadline if self._policy is Policy.EDF else 0
        entry = (due, oldest, self._count, instance)
        heapq.heappush(self._sites[instance.task.site].queue, entry)

    def _dispatch(self, site: _Site) -> None:
        if site.running:
            if not site.queue or site.running[:3] <= site.queue[0][:3]:
                return
            interrupted = site.running[3]
            assert interrupted.left is not None
            interrupted.left -= self._now - site.since
            heapq.heappush(site.queue, site.running)
        if site.queue:
            site.running = heapq.heappop(site.queue)
            self._begin(site, site.running[3])

    def _begin(self, site: _Site, instance: _Instance) -> None:
        if instance.left is None:
            plain = instance.task.steps[instance.step].cost
            instance.left = self._cost(instance.task.site, plain)
        site.since = self._now
        site.turn += 1
        turn = site.turn
        self._at(self._now + instance.left, lambda: self._end(site, turn))

    def _end(self, site: _Site, turn: int) -> None:
        """One tuple has passed one operator."""
        if turn != site.turn or site.running is None:
            return
        instance = site.running[3]
        step = instance.task.steps[instance.step]
        self._filter(step, instance)
        instance.left = None
        instance.next += 1
        if instance.next == len(instance.tuples):
            kept, instance.kept = instance.kept, []
            instance.tuples, instance.next = kept, 0
            instance.step += 1
            self._hand_on(step.operator, kept)
        heapq.heappush(site.queue, site.running)
        if not instance.tuples or instance.step == len(instance.task.steps):
            site.queue = [one for one in site.queue if one[3] is not instance]
            heapq.heapify(site.queue)
        site.running = None

    def _filter(self, step: Step, instance: _Instance) -> None:
        number = self._passed.get(step.operator, self._phase)
        self._passed[step.operator] = number + 1
        if number % step.every == 0:
            instance.kept.append(instance.tuples[instance.next])
