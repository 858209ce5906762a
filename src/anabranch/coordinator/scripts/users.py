"""Who needs a definition: what must be dropped before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from anabranch.plan.catalog import (
    AggregateDef,
    AnyDef,
    ApproximateDef,
    PocketDef,
    QueryDef,
    StreamDef,
)
from anabranch.plan.operators import Aggregate


def needs(one: AnyDef, found: AnyDef) -> bool:
    """Whether `one` reads, fills or calls `found`."""
    if isinstance(one, PocketDef):
        return found.name in (*one.reads, one.output)
    if not isinstance(one, QueryDef):
        return False
    aggregates = (op for op in one.written.operators if isinstance(op, Aggregate))
    calls = [call.function for aggregate in aggregates for call in aggregate.calls if call.source]
    return found.name in (calls if isinstance(found, AggregateDef) else (*one.reads, *one.stages))


def users(found: AnyDef, known: Mapping[str, AnyDef]) -> list[AnyDef]:
    """Those that need `found` or what goes with it, as a user knows them: a pocket for what came
    with it, a query for its workers. What a pocket fills may stay without it."""
    gone = [found, *(known[name] for name in _going_with(found) if name in known)]
    direct = (one for one in known.values() if any(needs(one, it) for it in gone))
    named = {one.name: one for one in (_dropped_as(user, known) for user in direct)}
    return [one for one in named.values() if one not in gone]


def flows(one: AnyDef, known: Collection[AnyDef]) -> bool:
    """Whether tuples of it may have passed already: a source waits for its first reader."""
    if isinstance(one, StreamDef) and one.source:
        return any(needs(user, one) for user in known)
    return isinstance(one, StreamDef | QueryDef)


def droppable(found: AnyDef, known: Mapping[str, AnyDef]) -> list[AnyDef]:
    """All that must be dropped before `found`, in an order in which it can be."""
    order: dict[str, AnyDef] = {}

    def visit(one: AnyDef) -> None:
        for user in users(one, known):
            if user.name not in order:
                visit(user)
                order[user.name] = user

    visit(found)
    return list(order.values())


def _going_with(found: AnyDef) -> Iterator[str]:
    if isinstance(found, QueryDef):
        yield from found.stages
    elif isinstance(found, PocketDef):
        yield from (name for name in found.made if name != found.output)
    elif isinstance(found, ApproximateDef):
        yield from (*(worker.query for worker in found.workers), *found.leaving)


def _dropped_as(one: AnyDef, known: Mapping[str, AnyDef]) -> AnyDef:
    if isinstance(one, QueryDef) and one.part_of:
        return known.get(one.part_of, one)
    pockets = (it for it in known.values() if isinstance(it, PocketDef))
    return next((pocket for pocket in pockets if one.name in pocket.made), one)
