"""Re-placement and deadlines: queries move where their deadlines hold, and nothing moves that would
break one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch.coordinator.placement.deadlines import Deadlines
from anabranch.coordinator.placement.moves import Moved, Replan
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.definitions import placed, settled_sink
from anabranch.plan.placed import allowed
from anabranch.plan.tasks import sink_task
from anabranch.units import show_duration

BREAKS = "a deadline would not hold any more if it moved"


def with_deadlines(
    found: Replan, known: Mapping[str, AnyDef], deadlines: Deadlines, alive: Sequence[str]
) -> Replan:
    """While all deadlines hold where their queries are, these stay; if they do not, their queries
    are placed anew before anything else is."""
    if not any(isinstance(one, QueryDef) and one.deadline for one in known.values()):
        return found
    if deadlines.hold(known):
        if not found.moves or deadlines.hold(_after(known, found.moves)):
            return found
        stays = {one.task: BREAKS for one in found.moves}
        return replace(found, after=found.before, moves=(), stays={**found.stays, **stays})
    moves = _moves(known, deadlines, alive)
    tasks = {one.task for one in moves}
    stays = {name: why for name, why in found.stays.items() if name not in tasks}
    return replace(found, after=found.before, moves=tuple(moves), stays=stays)


def _moves(known: Mapping[str, AnyDef], deadlines: Deadlines, alive: Sequence[str]) -> list[Moved]:
    """What deadlines wait for, to where the deadline program has it; none if no placement would
    do. Also queries without a deadline that others read which have one."""
    free: dict[str, tuple[str, ...]] = {}
    was_at: dict[str, str] = {}
    urgent = deadlines.timely(known)
    for query in known.values():
        if not isinstance(query, QueryDef) or query.pinned or query.stages:
            continue
        for node in query.nodes:
            may = allowed(query, own=node.name == query.name, sites=tuple(alive))
            here = [one for one in alive if may is None or one in may]
            here = [one for one in here if one in free.get(node.name, here)]
            if node.name in urgent and node.site in here:
                free[node.name] = tuple(sorted(here, key=lambda site: (site != node.site, site)))
                was_at[node.name] = node.site
        if query.name in free and query.sink and settled_sink(query) is None:
            free[sink_task(query.name)] = free[query.name]
    for one in known.values():
        if isinstance(one, QueryDef) and one.pinned:
            for node in one.nodes:
                free.pop(node.name, None)
    sites = deadlines.sites(known, free)
    return [
        Moved(task, was_at[task], site, why=_why(task, known, deadlines))
        for task, site in sites.items()
        if site != was_at.get(task, site)
    ]


def _why(task: str, known: Mapping[str, AnyDef], deadlines: Deadlines) -> str:
    """The shortest deadline that waits for a task."""
    waiting = [
        (one.deadline.us, name)
        for name, one in known.items()
        if isinstance(one, QueryDef) and one.deadline and task in deadlines.timely(known, name)
    ]
    us, name = min(waiting)
    return f"for DEADLINE {show_duration(us)} of {name}"


def _after(known: Mapping[str, AnyDef], moves: Sequence[Moved]) -> dict[str, AnyDef]:
    """The same once these have moved."""
    there = dict(known)
    for move in moves:
        there = {name: placed(one, move.task, move.site) for name, one in there.items()}
    return there
