"""A script's queries on the way to a deadline, placed together by the deadline program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from anabranch.coordinator.placement.deadlines import Deadlines
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.definitions import relation, tasks
from anabranch.plan.placed import Spread, allowed, settled, spread
from anabranch.plan.tasks import sink_task

Known = Mapping[str, AnyDef]


def placed_together(
    new: Sequence[AnyDef],
    known: Known,
    running: Mapping[str, str],
    deadlines: Deadlines,
    alive: Sequence[str],
) -> dict[str, QueryDef]:
    """Those among the `new` definitions that may be anywhere and that a deadline waits for, where
    all deadlines hold; if they hold nowhere, where the least would have to be put off. `known` has
    them too, placed somehow; `running` are nodes that run already, with their sites."""
    ours = _timely(new, known, deadlines)
    if not ours:
        return {}
    plans = {one.name: spread(one, partial(relation, known), running) for one in ours}
    others = [one for one in known.values() if isinstance(one, QueryDef) and one.name not in plans]
    fixed = {node.name: node.site for one in others for node in one.nodes}
    apart = {name: plan.at(fixed) for name, plan in plans.items()}
    free = _free(list(apart.values()), fixed, alive)
    sites = deadlines.admission({**known, **apart}).nearest(free)
    if not sites:
        return {}
    return _settled(plans, fixed | sites, known, running)


def _timely(new: Sequence[AnyDef], known: Known, deadlines: Deadlines) -> list[QueryDef]:
    free = [
        one
        for one in new
        if isinstance(one, QueryDef) and not (one.pinned or one.stages or one.part_of)
    ]
    if not free or not any(isinstance(one, QueryDef) and one.deadline for one in new):
        return []
    urgent = deadlines.timely(known)
    return [one for one in free if any(task.name in urgent for task in tasks([one], known))]


def _free(
    queries: Sequence[QueryDef], fixed: Collection[str], alive: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Task → where it may be, where it is now first: of sites that are as good, that is taken. One
    that two queries share may be where both may be."""
    free: dict[str, tuple[str, ...]] = {}
    for query in queries:
        for node in query.nodes:
            if node.name in fixed:
                continue
            may = allowed(query, own=node.name == query.name, sites=tuple(alive))
            here = [
                one
                for one in sorted(alive, key=lambda site: (site != node.site, site))
                if may is None or one in may
            ]
            both = [one for one in free.get(node.name, here) if one in here]
            if both or node.name not in free:
                free[node.name] = tuple(both)
        if query.sink and not query.sink_site:
            free[sink_task(query.name)] = free[query.name]
    return {name: sites for name, sites in free.items() if sites}


def _settled(
    plans: Mapping[str, Spread], sites: Mapping[str, str], known: Known, running: Mapping[str, str]
) -> dict[str, QueryDef]:
    """Each behind those it reads, as in the script."""
    done: dict[str, QueryDef] = {}
    for name, plan in plans.items():
        look = partial(relation, {**known, **done})
        done[name] = settled(plan.query, look, plan.outlined(sites), running)
    return done
