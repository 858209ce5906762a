"""A good placement, fast: each operator goes where it hurts least, then simulated annealing,
with an energy that is kept up to date move by move.

The energy is an estimate, not the objective: how much (6) asks for beyond the ideal sub-deadlines,
how much must then be taken from the other operators of the same output, and traffic. It is exact in
the most important point: it is above `IMPOSSIBLE` if and only if the placement has no sub-deadlines
or a site is overloaded.

The number of steps is fixed and the random numbers come from a fixed seed, so the same problem has
the same answer, on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp

import numpy as np

from anabranch.deadline.problem import TRAFFIC_WEIGHT, DeadlineProblem, all_traffic

IMPOSSIBLE = 1e6


@dataclass
class SiteExcess:
    """A site. `excess` is Σ size · (demand − d') / cost over the pairs that (6) asks too much
    of.
    """

    slots: float
    operators: set[int] = field(default_factory=set)
    load: float = 0.0
    excess: float = 0.0


class Energy:
    """Operators, pairs and sites by number: pairs as in `DeadlineProblem.order`, operators as in
    `DeadlineProblem.topological`. `total` means nothing until every operator has a site.
    """

    def __init__(self, problem: DeadlineProblem) -> None:
        names = [one.name for one in problem.topological]
        number = {name: n for n, name in enumerate(names)}
        self.operators = problem.topological
        self.site_names = list(problem.sites)
        self.sites = [SiteExcess(float(slots)) for slots in problem.sites.values()]
        self.at = [-1] * len(names)
        self._pair_of = [[] for _ in names]  # type: list[list[int]]
        self._ideal: list[float] = []
        self._weight: list[float] = []
        self._operator: list[int] = []
        self._output: list[int] = []
        outputs = {one.name: n for n, one in enumerate(problem.outputs)}
        for position, pair in enumerate(problem.order):
            operator = number[pair[1]]
            self._pair_of[operator].append(position)
            self._ideal.append(problem.ideal[pair])
            self._weight.append(self.operators[operator].size / self.operators[operator].cost)
            self._operator.append(operator)
            self._output.append(outputs[pair[0]])
        self._need = [0.0] * len(self._ideal)
        self._deadline = [one.deadline for one in problem.outputs]
        site = {name: n for n, name in enumerate(self.site_names)}
        self._steps = _steps(problem, number, site)
        self._latency = {
            (site[a], site[b]): delay
            for (a, b), delay in problem.latency.items()
            if delay and a != b and a in site and b in site
        }
        self._late = [0.0] * len(self._deadline)
        self._excess_pairs = [0] * len(self._deadline)
        self._streams = _Traffic(problem, number, self.site_names)

    def placement(self) -> dict[str, str]:
        return {one.name: self.site_names[self.at[n]] for n, one in enumerate(self.operators)}

    def total(self) -> float:
        overload = sum(max(0.0, site.load - site.slots) for site in self.sites)
        excess = sum(site.excess for site in self.sites)
        return excess + sum(self._late) + IMPOSSIBLE * 10 * overload + self._streams.cost

    def move(self, operator: int, site: int) -> None:
        before = self.at[operator]
        touched: set[int] = set()
        if before >= 0:
            self.sites[before].operators.discard(operator)
            self.sites[before].load -= self.operators[operator].load
            self._refill(before, touched)
        self.at[operator] = site
        self.sites[site].operators.add(operator)
        self.sites[site].load += self.operators[operator].load
        self._refill(site, touched)
        for output in touched:
            self._late[output] = self._lateness(output)
        self._streams.update(operator, self.at)

    def _refill(self, number: int, touched: set[int]) -> None:
        """Computes (6) for one site, pair by pair."""
        site = self.sites[number]
        busy = excess = 0.0
        last = -1
        seen: set[int] = set()
        for position in sorted(p for one in site.operators for p in self._pair_of[one]):
            operator = self._operator[position]
            if operator not in seen:
                seen.add(operator)
                busy += self.operators[operator].cost
            self._need[position] = busy
            over = busy - self._ideal[position]
            if over > 1e-12:
                excess += over * self._weight[position]
            if self._output[position] != last:
                last = self._output[position]
                touched.add(last)
        site.excess = excess

    def _arrival(
        self, at_site: int, end: dict[int, float], inputs: tuple[int, ...], sources: tuple[int, ...]
    ) -> float:
        """The time when the last of an operator's inputs has come, over links that take their
        time.
        """
        delay = self._latency
        came = [end[one] + delay.get((self.at[one], at_site), 0.0) for one in inputs]
        return max((*came, *(delay.get((site, at_site), 0.0) for site in sources)), default=0.0)

    def _lateness(self, output: int) -> float:
        """How much an output's other operators must give up, and far more if they cannot."""
        least: dict[int, float] = {}
        wanted: dict[int, float] = {}
        lightest = 0.0
        excess = False
        for operator, position, inputs, sources in self._steps[output]:
            need, ideal = self._need[position], self._ideal[position]
            excess = excess or need > ideal + 1e-12
            lightest = min(lightest or self._weight[position], self._weight[position])
            if self._latency:
                site = self.at[operator]
                least[operator] = need + self._arrival(site, least, inputs, sources)
                wanted[operator] = max(need, ideal) + self._arrival(site, wanted, inputs, sources)
                continue
            least[operator] = need + max((least[one] for one in inputs), default=0.0)
            wanted[operator] = max(need, ideal) + max((wanted[one] for one in inputs), default=0.0)
        if not excess and not self._latency:
            return 0.0
        late = least[operator] - self._deadline[output]
        late = IMPOSSIBLE * (1 + late / self._deadline[output]) if late > 1e-12 else 0.0
        return late + max(0.0, wanted[operator] - self._deadline[output]) * lightest


def _steps(
    problem: DeadlineProblem, number: dict[str, int], site: dict[str, int]
) -> list[list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]]:
    """For each output: its operators in topological order, with their pair, their inputs and the
    sites of the sources that they read."""
    position = {pair: n for n, pair in enumerate(problem.order)}
    steps = []
    for output in problem.outputs:
        inside = {one.name for one in problem.upstream[output.name]}
        steps.append(
            [
                (
                    number[one.name],
                    position[output.name, one.name],
                    tuple(number[name] for name in one.inputs if name in inside),
                    tuple(
                        site[problem.source_sites[name]]
                        for name in one.inputs
                        if name in problem.source_sites
                    ),
                )
                for one in problem.upstream[output.name]
            ]
        )
    return steps


class _Traffic:
    """The traffic that crosses sites, as the objective counts it."""

    def __init__(self, problem: DeadlineProblem, number: dict[str, int], sites: list[str]) -> None:
        unit = TRAFFIC_WEIGHT / (all_traffic(problem) or 1.0)
        numbers = {name: n for n, name in enumerate(sites)}
        self.cost = 0.0
        self._crossing: dict[int, float] = {}
        self._stream: dict[int, tuple[float, list[int], set[int], int | None]] = {}
        self._touching: list[list[int]] = [[] for _ in number]
        sinks: dict[str, set[int]] = {}
        for output in problem.outputs:
            if output.site is not None:
                sinks.setdefault(output.operator, set()).add(numbers[output.site])
        streams = [(one.name, one.traffic, numbers[one.site]) for one in problem.sources]
        named = [(one.name, one.traffic, None) for one in problem.operators]
        for n, (name, traffic, fixed) in enumerate([*streams, *named]):
            readers = [number[one] for one in problem.readers[name]]
            self._stream[n] = (traffic * unit, readers, sinks.get(name, set()), fixed)
            if fixed is None:
                self._made = getattr(self, "_made", {})
                self._made[n] = number[name]
                self._touching[number[name]].append(n)
            for reader in readers:
                self._touching[reader].append(n)

    def update(self, operator: int, at: list[int]) -> None:
        for stream in self._touching[operator]:
            cost, readers, sinks, fixed = self._stream[stream]
            site = at[self._made[stream]] if fixed is None else fixed
            needed = {at[reader] for reader in readers} | sinks
            crossing = cost * len(needed - {site, -1})
            self.cost += crossing - self._crossing.get(stream, 0.0)
            self._crossing[stream] = crossing


STEPS_PER_OPERATOR = 150
MOST_STEPS = 40_000
COLDEST = 1e-3
POLISH_PER_OPERATOR = 10
"""Steps that are left for traffic once nothing else is to be gained."""


def anneal(problem: DeadlineProblem) -> dict[str, str]:
    """A placement; its deadlines may not hold."""
    energy = Energy(problem)
    choices = [
        [energy.site_names.index(site) for site in operator.sites] for operator in energy.operators
    ]
    _greedy(problem, energy, choices)
    free = [n for n, sites in enumerate(choices) if len(sites) > 1]
    if not free:
        return energy.placement()
    return _cool(energy, choices, free, min(MOST_STEPS, STEPS_PER_OPERATOR * len(free)))


def _greedy(problem: DeadlineProblem, energy: Energy, choices: list[list[int]]) -> None:
    """Places pinned operators first, then the densest."""
    ideal: dict[str, float] = {}
    for (_, name), value in problem.ideal.items():
        ideal[name] = min(value, ideal.get(name, value))

    def key(n: int) -> tuple[bool, float, int]:
        operator = energy.operators[n]
        return len(choices[n]) > 1, -operator.cost / ideal.get(operator.name, 1.0), n

    for n in sorted(range(len(choices)), key=key):
        best = min(choices[n], key=lambda site: (_tried(energy, n, site), site))
        energy.move(n, best)


def _tried(energy: Energy, operator: int, site: int) -> float:
    energy.move(operator, site)
    return energy.total()


def _cool(energy: Energy, choices: list[list[int]], free: list[int], steps: int) -> dict[str, str]:
    """The best placement seen. Once nothing but traffic is left, only what lowers it is
    accepted.
    """
    random = np.random.default_rng(1)
    who = random.integers(0, len(free), steps)
    where = random.random(steps)
    luck = random.random(steps)
    now = lowest = energy.total()
    best = energy.placement()
    hottest = max(1e-2, min(now, 1e3) / len(free))
    polish = POLISH_PER_OPERATOR * len(free)
    for step in range(steps):
        if now <= TRAFFIC_WEIGHT:
            polish -= 1
        if not polish:
            break
        operator = free[who[step]]
        before = energy.at[operator]
        sites = choices[operator]
        site = sites[int(where[step] * len(sites))]
        if site == before:
            continue
        energy.move(operator, site)
        then = energy.total()
        warmth = hottest * (COLDEST / hottest) ** (step / steps)
        worse = then - now
        if worse <= 0 or (now > TRAFFIC_WEIGHT and luck[step] < exp(-min(worse / warmth, 700))):
            now = then
            if now < lowest - 1e-12:
                lowest, best = now, energy.placement()
        else:
            energy.move(operator, before)
    return best
