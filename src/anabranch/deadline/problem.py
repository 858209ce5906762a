"""Operators, where they may run and by when their results must be there, as data; and what is
decided about them.

Times are in seconds. Notation as in the paper: c_o is an operator's cost, d_s the end-to-end
deadline of an output, Pre(s) the operators upstream of it, d'_{s,o} an ideal sub-deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Pair = tuple[str, str]
"""An output and one of the operators upstream of it."""


@dataclass(frozen=True)
class DeadlineSource:
    name: str
    site: str
    traffic: float = 1.0
    """What it puts on a link to another site, in any unit that all streams share."""


@dataclass(frozen=True)
class Operator:
    """`cost` is its computing time for all tuples that come at once, `load` the share of a slot
    that it takes while input keeps coming. It waits for all its `inputs`, which are the names of
    sources or operators. `size` is the number of a query's operators that it stands for."""

    name: str
    cost: float
    inputs: tuple[str, ...]
    sites: tuple[str, ...]
    load: float = 0.0
    traffic: float = 1.0
    size: int = 1


@dataclass(frozen=True)
class DeadlineOutput:
    """The results of an operator, due `deadline` after the input that completes them. `site` is the
    sink's; None means the site where they are computed.
    """

    name: str
    operator: str
    deadline: float
    site: str | None = None


@dataclass(frozen=True)
class DeadlineProblem:
    """`sites` says how many slots each has. No stream may directly cross a pair in `forbidden`;
    only the full form of the program knows them. `latency` is the time of a tuple from one site to
    another, 0 where it is not named. Raises ValueError if a name is unknown, a cost not positive or
    the operators go in a circle.
    """

    sites: dict[str, int]
    sources: tuple[DeadlineSource, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[DeadlineOutput, ...]
    forbidden: frozenset[tuple[str, str]] = field(default=frozenset())
    latency: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = [one.name for one in self.streams]
        if len(set(known)) < len(known):
            raise ValueError("two operators or sources have one name")
        for operator in self.operators:
            _check(operator, set(known), self.sites)
        if lost := {one.operator for one in self.outputs} - {one.name for one in self.operators}:
            raise ValueError(f"an output is made by an unknown operator: {min(lost)}")
        if len(self.topological) < len(self.operators):
            raise ValueError("operators must not read each other in a circle")

    @property
    def streams(self) -> tuple[DeadlineSource | Operator, ...]:
        """All sources and operators, which can be read."""
        return (*self.sources, *self.operators)

    @cached_property
    def by_name(self) -> dict[str, Operator]:
        return {one.name: one for one in self.operators}

    def delay(self, sender: str, receiver: str) -> float:
        return 0.0 if sender == receiver else self.latency.get((sender, receiver), 0.0)

    @cached_property
    def source_sites(self) -> dict[str, str]:
        return {one.name: one.site for one in self.sources}

    @cached_property
    def topological(self) -> tuple[Operator, ...]:
        """The operators, each after those that it reads."""
        done = {one.name for one in self.sources}
        order: list[Operator] = []
        waiting = list(self.operators)
        while ready := [one for one in waiting if done.issuperset(one.inputs)]:
            order += ready
            done.update(one.name for one in ready)
            waiting = [one for one in waiting if one.name not in done]
        return tuple(order)

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Source or operator → the operators that read it."""
        by_name: dict[str, list[str]] = {one.name: [] for one in self.streams}
        for operator in self.operators:
            for name in dict.fromkeys(operator.inputs):
                by_name[name].append(operator.name)
        return {name: tuple(readers) for name, readers in by_name.items()}

    @cached_property
    def upstream(self) -> dict[str, tuple[Operator, ...]]:
        """Pre(s) of every output, in topological order."""
        return {output.name: self._upstream(output.operator) for output in self.outputs}

    def _upstream(self, last: str) -> tuple[Operator, ...]:
        needed = {last}
        for operator in reversed(self.topological):
            if operator.name in needed:
                needed.update(operator.inputs)
        return tuple(one for one in self.topological if one.name in needed)

    @cached_property
    def ideal(self) -> dict[Pair, float]:
        """(1): d'_{s,o} = c_o · d_s / c'_s, an equal share of laxity for every operator."""
        return dict(self._ideals())

    def _ideals(self) -> Iterator[tuple[Pair, float]]:
        for output in self.outputs:
            upstream = self.upstream[output.name]
            whole = sum(one.cost for one in upstream)
            for operator in upstream:
                yield (output.name, operator.name), operator.cost * output.deadline / whole

    @cached_property
    def order(self) -> tuple[Pair, ...]:
        """All pairs by d' ascending, as (6) wants them; ties go to the shorter end-to-end deadline,
        then to the operator upstream.
        """
        deadline = {one.name: one.deadline for one in self.outputs}
        place = {one.name: n for n, one in enumerate(self.topological)}
        rank = {one.name: n for n, one in enumerate(self.outputs)}

        def key(pair: Pair) -> tuple[float, float, int, int]:
            # Rounded, so that a tie is one in floating point too.
            ideal = float(f"{self.ideal[pair]:.9g}")
            return ideal, deadline[pair[0]], place[pair[1]], rank[pair[0]]

        return tuple(sorted(self.ideal, key=key))


def _check(operator: Operator, known: set[str], sites: dict[str, int]) -> None:
    where = f"operator {operator.name}"
    if operator.cost <= 0:
        raise ValueError(f"{where} must cost something")
    if unknown := set(operator.inputs) - known:
        raise ValueError(f"{where} reads {min(unknown)}, which nobody makes")
    if unknown := set(operator.sites) - set(sites):
        raise ValueError(f"{where} may run at {min(unknown)}, which is no site")
    if not operator.sites:
        raise ValueError(f"{where} may run nowhere")


TRAFFIC_WEIGHT = 1e-3
"""What all streams between sites together count for in the objective: they break ties."""


@dataclass(frozen=True)
class DeadlinePlan:
    """`objective` is (3) plus the tie-break, `bound` is a lower bound of all plans. `promised` are
    the outputs' deadlines, longer than asked for if they had to be.
    """

    placement: dict[str, str]
    deadlines: dict[Pair, float]
    promised: dict[str, float]
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """How much better another plan might be, as a share of the objective. A difference in
        traffic alone, which only breaks ties, is no gap.
        """
        missing = self.objective - self.bound
        return missing / self.objective if missing > TRAFFIC_WEIGHT else 0.0

    def sub_deadline(self, operator: str) -> float:
        """The operator's sub-deadline; an operator that several outputs share takes the
        smallest.
        """
        return min(value for (_, name), value in self.deadlines.items() if name == operator)


def traffic_share(problem: DeadlineProblem, placement: dict[str, str]) -> float:
    """The part of all possible traffic that crosses sites; a stream counts once a site."""
    crossing = sum(
        traffic * len(sites - {here}) for _, here, traffic, sites in _flows(problem, placement)
    )
    return crossing / (all_traffic(problem) or 1.0)


def all_traffic(problem: DeadlineProblem) -> float:
    """The traffic if every reader and sink were elsewhere, each at a site of its own."""
    sinks: dict[str, int] = {}
    for output in problem.outputs:
        sinks[output.operator] = sinks.get(output.operator, 0) + (output.site is not None)
    return sum(
        one.traffic * (len(problem.readers[one.name]) + sinks.get(one.name, 0))
        for one in problem.streams
    )


def _flows(
    problem: DeadlineProblem, placement: dict[str, str]
) -> list[tuple[str, str, float, set[str]]]:
    """For each stream: its name, its site, its traffic, and the sites that need it."""
    needed = {
        name: {placement[reader] for reader in readers} for name, readers in problem.readers.items()
    }
    for output in problem.outputs:
        if output.site is not None:
            needed[output.operator].add(output.site)
    flows = [(one.name, one.site, one.traffic, needed[one.name]) for one in problem.sources]
    for operator in problem.operators:
        site = placement[operator.name]
        flows.append((operator.name, site, operator.traffic, needed[operator.name]))
    return flows


def overloaded(problem: DeadlineProblem, placement: dict[str, str]) -> str | None:
    """A site that cannot keep up with its input in the long run, if there is one."""
    load = dict.fromkeys(problem.sites, 0.0)
    for operator in problem.operators:
        load[placement[operator.name]] += operator.load
    return next((site for site, slots in problem.sites.items() if load[site] > slots + 1e-9), None)
