"""Random query plans with deadlines, for tests and measurements."""

from __future__ import annotations

from random import Random

from anabranch.deadline.problem import DeadlineOutput, DeadlineProblem, DeadlineSource, Operator

FREE = 0.7
"""The share of operators that may run anywhere; the others are pinned."""
QUERY = 10
"""Operators of a query."""


def random_problem(
    seed: int, sites: int, operators: int, tight: float, *, merge: float = 0.3, share: float = 0.1
) -> DeadlineProblem:
    """Queries of about ten operators. `tight` is the share of every site's time that all of them
    take if each is run once in its ideal sub-deadline: about 1 is the most that can hold. `merge`
    is the share of operators with two inputs, `share` of those that read another query's."""
    random = Random(seed)
    names = [f"s{n}" for n in range(sites)]
    sources = tuple(
        DeadlineSource(f"in{n}", random.choice(names), random.uniform(1, 100))
        for n in range(max(2, operators // 5))
    )
    made: list[Operator] = []
    outputs: list[DeadlineOutput] = []
    load = 0.5 * sites / operators
    while len(made) < operators:
        first = len(made)
        length = min(operators - first, random.randint(QUERY // 2, QUERY * 3 // 2))
        for n in range(first, first + length):
            inputs = _inputs(random, [one.name for one in made], first, sources, merge, share)
            where = tuple(names) if random.random() < FREE else (random.choice(names),)
            cost = random.uniform(0.001, 0.010)
            traffic = random.uniform(1, 100)
            made.append(Operator(f"o{n}", cost, inputs, where, load * random.random(), traffic))
        outputs.append(DeadlineOutput(f"out{first}", made[-1].name, 1.0, random.choice(names)))
    problem = DeadlineProblem(dict.fromkeys(names, 1), sources, tuple(made), tuple(outputs))
    return _with_deadlines(random, problem, tight)


def _inputs(
    random: Random,
    made: list[str],
    first: int,
    sources: tuple[DeadlineSource, ...],
    merge: float,
    share: float,
) -> tuple[str, ...]:
    """The operator before it, so that a query hangs together, and perhaps one more stream."""
    before = made[-1] if len(made) > first else random.choice(sources).name
    if random.random() >= merge:
        return (before,)
    others = made if made and random.random() < share else [one.name for one in sources]
    other = random.choice(others)
    return (before,) if other == before else (before, other)


def _with_deadlines(random: Random, problem: DeadlineProblem, tight: float) -> DeadlineProblem:
    per_site = len(problem.operators) / len(problem.sites)
    outputs = []
    for output in problem.outputs:
        whole = sum(one.cost for one in problem.upstream[output.name])
        stretch = random.uniform(0.7, 1.5) * per_site / tight
        deadline = whole * max(1.05, stretch)
        outputs.append(DeadlineOutput(output.name, output.operator, deadline, output.site))
    return DeadlineProblem(problem.sites, problem.sources, problem.operators, tuple(outputs))
