"""Standbys that follow the network: one that would be much better elsewhere is posted there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from anabranch.coordinator.base.turns import Turns
from anabranch.coordinator.protection.protect import Costs, Protector, changed_with
from anabranch.errors import AnabranchError
from anabranch.plan.definitions import Definitions, protected, spec_of
from anabranch.plan.protection import Standby
from anabranch.runtime.base import Runtime

GAIN = 0.3
"""Of what its links would cost after a take-over, at least: while one is replaced, nobody stands
by."""
Followed = tuple[str, str, str]
"""A task, where its standby was, where it is now."""


async def follow(
    runtime: Runtime, protector: Protector, turns: Turns, costs: Costs, known: Definitions
) -> list[Followed]:
    """Those that have gone elsewhere. One whose site the user has named stays."""
    done: list[Followed] = []
    for name, standby in _free(protector, known):
        found = await runtime.blocking(costs, name, known)
        assigned = protector.assignments.get(name)
        if assigned is None or assigned.standby is None:
            continue
        best = protector.choose(spec_of(name, known), assigned, None, found)
        now = found.get(assigned.standby)
        if best is None or now is None or found.get(best, now) > (1 - GAIN) * now:
            continue
        async with turns.of([changed_with(name, known)]):
            with suppress(AnabranchError):  # the watcher posts another one then
                if protector.assignments.get(name) == assigned:
                    await protector.post(name, best, standby, known)
                    done.append((name, assigned.standby, best))
    return done


def _free(protector: Protector, known: Definitions) -> Iterator[tuple[str, Standby]]:
    for name, standby in protected(known).items():
        if standby.on is None and protector.in_hand(name):
            yield name, standby
