"""Protection for a task that was created without, and its end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from anabranch.coordinator.base.sites import ASK_S, Sites
from anabranch.coordinator.protection.assignments import Assignment
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError
from anabranch.link.messages import Drop
from anabranch.plan.definitions import Definitions, spec_of


def adopt(protector: Protector, name: str, known: Definitions) -> Assignment:
    """Who runs the task, which may be taken over from now on. It has a standby once `known` asks
    for one and somebody could be posted."""
    assignment = protector.assignments.get(name)
    if assignment is None:
        assignment = Assignment(spec_of(name, known).site, 0, stream=name)
        protector.assignments.set(name, assignment)
    protector.want(known)
    return assignment


async def release(protector: Protector, sites: Sites, name: str) -> None:
    """Nobody stands by for the task any more: a route without a standby says so."""
    assignment = protector.assignments.get(name)
    if assignment and assignment.standby:
        claim = protector.assignments.next_epoch()
        protector.assignments.set(name, replace(assignment, standby=None, claim=claim))
        await protector.broadcast()
        with suppress(AnabranchError):
            await sites.call(assignment.standby, Drop(standbys=(name,)), ASK_S)
