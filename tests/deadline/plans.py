"""Small random plans, and the best of all their placements found by trying each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import strategies as st

from anabranch.deadline.problem import (
    TRAFFIC_WEIGHT,
    DeadlineOutput,
    DeadlineProblem,
    DeadlineSource,
    Operator,
    overloaded,
    traffic_share,
)
from anabranch.deadline.subdeadlines import assign

SITES = ("a", "b", "c")


@st.composite
def problems(draw: st.DrawFn, links: bool = False, far: bool = False) -> DeadlineProblem:
    """Up to five operators at up to three sites, with branches, joins and shared operators. Numbers
    are such that ties are ties. If sites are `far` apart, tuples take some time between them."""
    sites = SITES[: draw(st.integers(1, 3))]
    sources = tuple(
        DeadlineSource(f"in{n}", draw(st.sampled_from(sites)), draw(st.integers(1, 9)))
        for n in range(draw(st.integers(1, 2)))
    )
    made: list[Operator] = []
    for n in range(draw(st.integers(1, 5))):
        streams = [one.name for one in (*sources, *made)]
        inputs = draw(st.lists(st.sampled_from(streams), min_size=1, max_size=2, unique=True))
        where = draw(st.lists(st.sampled_from(sites), min_size=1, unique=True))
        cost, load = draw(st.integers(1, 8)), draw(st.integers(0, 5)) / 10
        traffic = draw(st.integers(1, 9))
        made.append(Operator(f"o{n}", cost / 8, tuple(inputs), tuple(sorted(where)), load, traffic))
    last = {one.name for one in made} - {name for one in made for name in one.inputs}
    others = [one.name for one in made if one.name not in last]
    final = sorted(last) + (draw(st.lists(st.sampled_from(others), unique=True)) if others else [])
    outputs = tuple(
        DeadlineOutput(
            f"out-{name}", name, draw(st.integers(2, 60)) / 8, draw(st.sampled_from(sites))
        )
        for name in final
    )
    forbidden: frozenset[tuple[str, str]] = frozenset()
    if links:
        pairs = st.tuples(st.sampled_from(sites), st.sampled_from(sites))
        forbidden = frozenset(draw(st.lists(pairs, max_size=3)))
    latency = {(a, b): draw(st.integers(0, 8)) / 8 for a in sites for b in sites} if far else {}
    return DeadlineProblem(
        dict.fromkeys(sites, 1), sources, tuple(made), outputs, forbidden, latency
    )


def placements(problem: DeadlineProblem) -> Iterator[dict[str, str]]:
    for sites in product(*(one.sites for one in problem.operators)):
        yield dict(zip((one.name for one in problem.operators), sites, strict=True))


def exhaustive(problem: DeadlineProblem) -> float | None:
    """The least objective of all placements that hold."""
    found = [_objective(problem, one) for one in placements(problem)]
    return min((one for one in found if one is not None), default=None)


def _objective(problem: DeadlineProblem, placement: dict[str, str]) -> float | None:
    if overloaded(problem, placement):
        return None
    hops = _hops(problem, placement)
    assigned = assign(problem, placement)
    if assigned is None or hops is None:
        return None
    if problem.forbidden:
        return assigned.deviation
    return assigned.deviation + TRAFFIC_WEIGHT * traffic_share(problem, placement)


def _hops(problem: DeadlineProblem, placement: dict[str, str]) -> bool | None:
    """True if every stream can get where it is needed, over relays perhaps; else None."""
    home = {one.name: one.site for one in problem.sources} | placement
    for name, readers in problem.readers.items():
        reached, grown = {home[name]}, set[str]()
        while reached != grown:
            grown = set(reached)
            reached |= {b for a in grown for b in problem.sites if (a, b) not in problem.forbidden}
        needed = {placement[one] for one in readers}
        needed |= {one.site for one in problem.outputs if one.operator == name and one.site}
        if not needed <= reached:
            return None
    return True
