"""Faults as they befall a world: each at its moment, to whom it is meant for then."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from simulation.edges import CrashAtStep, Deaf, Edge, Flap, Full, Trouble, Vanish
from simulation.faults import (
    COORDINATOR,
    Change,
    Crash,
    Cut,
    Fault,
    Move,
    MoveAll,
    Part,
    Pause,
    Strike,
    Unprotected,
)
from simulation.outages import (
    ClockSet,
    DiesWriting,
    Older,
    Outage,
    PowerCut,
    TopicAway,
    TopicChanged,
)

if TYPE_CHECKING:
    from simulation.site import SimSite
    from simulation.world import World


class Injection:
    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = world.clock
        self._older: dict[str, dict[str, bytes]] = {}

    def schedule(self, faults: Iterable[Fault | Edge | Outage]) -> None:
        """From now on."""
        for fault in faults:
            self._clock.after(fault.at, self.befall, fault)
            if isinstance(fault, Older):
                self._clock.after(max(0, fault.at - fault.before), self._snapshot, fault.site)

    def befall(self, fault: Fault | Edge | Outage) -> None:
        match fault:
            case Crash():
                self._world.crash(fault.site, fault.lasts)
            case Pause():
                self._world.pause(fault.site, fault.lasts)
            case Vanish():
                self._world.vanish(fault.site, fault.lasts)
            case Full():
                self._world.fill(fault.site, fault.lasts)
            case Trouble():
                self._world.trouble(fault.process, fault.share, fault.lasts)
            case CrashAtStep():
                crash = partial(self._world.crash, COORDINATOR, fault.lasts)
                self._world.coordinator.process.end_after(fault.steps, crash)
            case Cut() | Deaf() | Flap() | Part() | Change():
                self._to_network(fault)
            case ClockSet() | PowerCut() | DiesWriting() | Older():
                self._to_machine(fault)
            case TopicAway():
                self._world.log(fault.stream, f"is away for {fault.lasts}")
                self._world.topics[fault.stream].away = True
                self._clock.after(fault.lasts, self._topic_back, fault.stream)
            case TopicChanged():
                self._change(fault)
            case Move() | MoveAll() | Unprotected():
                self._to_coordinator(fault)
            case Strike():
                for site in self._struck(fault):
                    if fault.pauses:
                        self._world.pause(site.name, fault.lasts)
                    else:
                        self._world.crash(site.name, fault.lasts)

    # -- the network -----------------------------------------------------------------------------

    def _to_network(self, fault: Cut | Deaf | Flap | Part | Change) -> None:
        match fault:
            case Cut():
                self._cut(fault.one, fault.other, fault.lasts)
            case Deaf():
                self._deafen(fault.sender, fault.receiver, fault.lasts)
            case Flap():
                self._flap(fault, self._clock.now + fault.lasts)
            case Part():
                for one in self._who(fault.task, "primary"):
                    for other in self._who(fault.task, "standby"):
                        self._cut(one.name, other.name, fault.lasts)
                    if fault.alone:
                        self._cut(one.name, COORDINATOR, fault.lasts)
            case Change():
                self._world.log(COORDINATOR, f"all are near to {fault.near}")
                sites = self._world.plan.sites
                self._world.wires.far = {
                    (a, b): fault.far
                    for a in sites
                    for b in sites
                    if a < b and fault.near not in (a, b)
                }

    def _cut(self, one: str, other: str, lasts: int) -> None:
        self._world.log(one, f"is cut off from {other} for {lasts}")
        self._world.wires.cut(one, other, self._clock.now + lasts)

    def _deafen(self, sender: str, receiver: str, lasts: int) -> None:
        self._world.log(receiver, f"does not hear {sender} for {lasts}")
        self._world.wires.cut_one_way(sender, receiver, self._clock.now + lasts)

    def _flap(self, fault: Flap, until: int) -> None:
        if self._clock.now >= until:
            return
        if fault.one_way:
            self._deafen(fault.one, fault.other, fault.down)
        else:
            self._cut(fault.one, fault.other, fault.down)
        self._clock.after(fault.period, self._flap, fault, until)

    # -- what is kept, and what is read ----------------------------------------------------------

    def _snapshot(self, site: str) -> None:
        self._older[site] = dict(self._world.disks[site].files)

    def _to_machine(self, fault: ClockSet | PowerCut | DiesWriting | Older) -> None:
        world, disk = self._world, self._world.disks[fault.site]
        match fault:
            case ClockSet():
                if fault.lasts:
                    world.crash(fault.site, fault.lasts)
                world.set_clock(fault.site, fault.ahead)
            case PowerCut():
                world.crash(fault.site, fault.lasts)
                if world.plan.synced:
                    disk.lose_power()
            case DiesWriting():
                disk.fuse = fault.writes, fault.lasts
            case Older():
                world.crash(fault.site, fault.lasts)
                disk.go_back(self._older[fault.site])
                world.warrant_at(fault.site, "its folder is older than what it has said")

    def _topic_back(self, stream: str) -> None:
        self._world.topics[stream].away = False

    def _change(self, fault: TopicChanged) -> None:
        """Only of what has been given: what comes later is read as it is then."""
        world, topic = self._world, self._world.topics[fault.stream]
        if not world.deployed:
            return
        getattr(topic, fault.how)(world.rng, world.ledger.count(fault.stream))
        if topic.changed:
            world.log(fault.stream, f"has records that are not what they were: {fault.how}")
            world.warranted.setdefault(fault.stream, "what it reads has changed")
        world.crash(topic.spec.site, fault.lasts)

    # -- what is asked for -----------------------------------------------------------------------

    def _to_coordinator(self, fault: Move | MoveAll | Unprotected) -> None:
        coordinator = self._world.coordinator
        match fault:
            case Move() if fault.site:
                self._world.log(COORDINATOR, f"is asked to move {fault.task} to {fault.site}")
                coordinator.process.do(coordinator.move, fault.task, fault.site)
            case Move():
                for site in self._who(fault.task, "standby"):
                    self._world.log(site.name, f"is asked to take over {fault.task}")
                    site.process.do(self._take_over, site, fault.task)
            case MoveAll():
                self._world.log(COORDINATOR, f"is asked to move {dict(fault.sites)}")
                coordinator.process.do(coordinator.move_all, fault.sites)
            case Unprotected():
                said = f"has {fault.task} do without a standby for {fault.lasts}"
                self._world.log(COORDINATOR, said)
                coordinator.process.do(coordinator.unprotect, fault.task, fault.lasts)

    def _take_over(self, site: SimSite, task: str) -> None:
        if guard := site.service.protection.guards.get(task):
            guard.take_over()

    # -- whom it befalls -------------------------------------------------------------------------

    def _struck(self, fault: Strike) -> list[SimSite]:
        roles = ("primary", "standby") if fault.role == "both" else (fault.role,)
        return [site for role in roles for site in self._who(fault.task, role)]

    def _who(self, task: str, role: str) -> list[SimSite]:
        return [
            site
            for site in self._world.sites.values()
            if site.process.alive and task in site.tasks and site.tasks[task].role == role
        ]
