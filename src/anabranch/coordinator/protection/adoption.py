"""Standbys that come, go and follow: for a task that was created without one, and where the
network has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from anabranch.coordinator.base.sites import ASK_S, Sites
from anabranch.coordinator.base.turns import Turns
from anabranch.coordinator.protection.assignments import Assignment
from anabranch.coordinator.protection.protect import Costs, Protector, changed_with
from anabranch.errors import AnabranchError
from anabranch.link.messages import DropTasks
from anabranch.plan.definitions import Definitions, protected, spec_of
from anabranch.plan.service_levels import Standby
from anabranch.runtime.base import Runtime


def adopt(protector: Protector, name: str, known: Definitions) -> Assignment:
    """The assignment of the task, which may be taken over from now on. It has a standby once
    `known` asks for one and a site could be posted.
    """
    assignment = protector.assignments.get(name)
    if assignment is None:
        assignment = Assignment(spec_of(name, known).site, 0, stream=name)
        protector.assignments.set(name, assignment)
    protector.want(known)
    return assignment


async def release(protector: Protector, sites: Sites, name: str) -> None:
    """Removes the task's standby: a route without a standby tells it."""
    assignment = protector.assignments.get(name)
    if assignment and assignment.standby:
        claim = protector.assignments.next_epoch()
        protector.assignments.set(name, replace(assignment, standby=None, claim=claim))
        await protector.broadcast()
        with suppress(AnabranchError):
            await sites.call(assignment.standby, DropTasks(standbys=(name,)), ASK_S)


GAIN = 0.3
"""Of what its links would cost after a take-over, at least: while one is replaced, nobody stands
by."""
Followed = tuple[str, str, str]
"""A task, where its standby was, where it is now."""


async def follow(
    runtime: Runtime, protector: Protector, turns: Turns, costs: Costs, known: Definitions
) -> list[Followed]:
    """The standbys that have gone elsewhere. A standby whose site the user has named stays."""
    done: list[Followed] = []
    for name, standby in _free(protector, known):
        site = await runtime.blocking(costs, name, known)
        assigned = protector.assignments.get(name)
        if assigned is None or assigned.standby is None:
            continue
        best = protector.choose(spec_of(name, known), assigned, None, site)
        now = site.get(assigned.standby)
        if best is None or now is None or site.get(best, now) > (1 - GAIN) * now:
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
