"""All sites, the coordinator and the network of one run, and what befalls them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from anabranch.coordinator.control.catalog import Catalog
from simulation.bodies import Disk, Written
from simulation.clock import Clock, Process, Violation
from simulation.coordinator import SimCoordinator
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
from simulation.network import Wires
from simulation.plan import Plan, SinkPlan
from simulation.reference import Stream, first_difference, reference
from simulation.rows import Row
from simulation.site import SimSite

if TYPE_CHECKING:
    from anabranch.site.tasks.task import Task


class World:
    """`lines` collects one line per event if it is a list."""

    def __init__(self, plan: Plan, rng: Random, lines: list[str] | None = None) -> None:
        self.plan = plan
        self.rng = rng
        self.lines = lines
        self.clock = Clock()
        self._processes: list[Process] = []
        """All there ever were: what died stays as it is."""
        self.wires = Wires(self.clock, rng, plan.pace.delay)
        self.wanted: dict[str, Stream] = reference(plan)
        self._shared: dict[str, Written] = {}
        self.disks = {name: Disk() for name in plan.sites}
        for sink in plan.sinks:
            if sink.site is None:  # one place that all sites write to
                shared = self._shared[sink.name] = Written()
                for disk in self.disks.values():
                    disk.sinks[sink.name] = shared
        self.catalog = Catalog(":memory:")
        self.deployed = False
        self.moved = 0
        self._skew = {name: rng.choice((0, 0, 300, 7_000)) for name in (*plan.sites, COORDINATOR)}
        self.sites: dict[str, SimSite] = {}
        self.coordinator = self._new_coordinator()
        self._pids = 0
        self._faults: tuple[Fault, ...] = ()
        self._undone = {sink.name: sink for sink in plan.sinks if self.wanted[sink.query]}
        for name in plan.sites:
            self._boot(name)

    @property
    def done(self) -> bool:
        """Every sink has as many tuples as it should."""
        return not self._undone

    def written(self, sink: SinkPlan) -> dict[int, Row]:
        if sink.site is None:
            return self._shared[sink.name].rows
        return self.disks[sink.site].sinks.get(sink.name, Written()).rows

    def log(self, site: str, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.clock.now:6} {site:12} {text}")

    def close(self) -> None:
        for process in self._processes:
            process.bury()

    # -- life ------------------------------------------------------------------------------------

    def _boot(self, name: str) -> None:
        self._pids += 1
        site = self.sites[name] = SimSite(self, name, self._pids, self.disks[name])
        self._processes.append(site.process)
        self.wires.hosts[name] = site.host()

    def _new_coordinator(self) -> SimCoordinator:
        coordinator = SimCoordinator(self)
        self._processes.append(coordinator.process)
        self.wires.hosts[COORDINATOR] = coordinator.host()
        return coordinator

    def skew(self, process: str) -> int:
        """How far its clock is ahead."""
        return self._skew[process]

    def was_deployed(self) -> None:
        """From now on things go wrong."""
        self.deployed = True
        self.log(COORDINATOR, "has deployed everything")
        for fault in self._faults:
            self.clock.after(fault.at, self._befall, fault)

    # -- faults ----------------------------------------------------------------------------------

    def suffer(self, faults: Sequence[Fault]) -> None:
        """Once everything is deployed."""
        self._faults = tuple(faults)

    def _befall(self, fault: Fault) -> None:
        match fault:
            case Crash():
                self.crash(fault.site, fault.lasts)
            case Pause():
                self.pause(fault.site, fault.lasts)
            case Cut():
                self._cut(fault.one, fault.other, fault.lasts)
            case Part():
                for one in self._who(fault.task, "primary"):
                    for other in self._who(fault.task, "standby"):
                        self._cut(one.name, other.name, fault.lasts)
                    if fault.alone:
                        self._cut(one.name, COORDINATOR, fault.lasts)
            case Move() if fault.site:
                self.log(COORDINATOR, f"is asked to move {fault.task} to {fault.site}")
                self.coordinator.process.do(self.coordinator.move, fault.task, fault.site)
            case MoveAll():
                self.log(COORDINATOR, f"is asked to move {dict(fault.sites)}")
                self.coordinator.process.do(self.coordinator.move_all, fault.sites)
            case Change():
                self.log(COORDINATOR, f"all are near to {fault.near}")
                self.wires.far = {
                    (a, b): fault.far for a in self.plan.sites for b in self.plan.sites
                    if a < b and fault.near not in (a, b)
                }  # fmt: skip
            case Move():
                for site in self._who(fault.task, "standby"):
                    self.log(site.name, f"is asked to take over {fault.task}")
                    site.process.do(self._take_over, site, fault.task)
            case Unprotected():
                self.log(COORDINATOR, f"has {fault.task} do without a standby for {fault.lasts}")
                self.coordinator.process.do(self.coordinator.unprotect, fault.task, fault.lasts)
            case Strike():
                roles = ("primary", "standby") if fault.role == "both" else (fault.role,)
                for site in [one for role in roles for one in self._who(fault.task, role)]:
                    if fault.pauses:
                        self.pause(site.name, fault.lasts)
                    else:
                        self.crash(site.name, fault.lasts)

    def _cut(self, one: str, other: str, lasts: int) -> None:
        self.log(one, f"is cut off from {other} for {lasts}")
        self.wires.cut(one, other, self.clock.now + lasts)

    def _take_over(self, site: SimSite, task: str) -> None:
        if guard := site.service.protection.guards.get(task):
            guard.take_over()

    def _who(self, task: str, role: str) -> list[SimSite]:
        return [site for site in self.sites.values()
                if site.process.alive and task in site.tasks
                and site.tasks[task].role == role]  # fmt: skip

    def _process(self, name: str) -> Process:
        return self.coordinator.process if name == COORDINATOR else self.sites[name].process

    def crash(self, name: str, lasts: int | None) -> None:
        process = self._process(name)
        if not process.alive:
            return
        self.log(name, f"dies, for {lasts}")
        process.alive = process.paused = False
        process.deferred.clear()
        self.wires.died(process)
        if lasts is not None:
            self.clock.after(lasts, self._come_back, name)

    def _come_back(self, name: str) -> None:
        self.log(name, "is back")
        if name == COORDINATOR:
            self.coordinator = self._new_coordinator()
        else:
            self._boot(name)

    def pause(self, name: str, lasts: int) -> None:
        process = self._process(name)
        if process.alive and not process.paused:
            self.log(name, f"stands still for {lasts}")
            process.paused = True
            self.clock.after(lasts, self._go_on, name, process)

    def _go_on(self, name: str, process: Process) -> None:
        if process.paused:
            self.log(name, "goes on")
            process.go_on()

    # -- what must hold --------------------------------------------------------------------------

    def check(self, stream: str, first: int, rows: tuple[Row, ...]) -> None:
        """Whoever puts out a stream, in whichever role and epoch, gives a position the same
        tuple."""
        if stream not in self.wanted:
            return
        wanted = self.wanted[stream][first - 1 : first - 1 + len(rows)]
        if wanted != list(rows):
            got = dict(enumerate(rows, 1))
            raise Violation(f"stream {stream} from {first} on: {first_difference(got, wanted)}")

    def progress(self, task: Task) -> None:
        sink = self._undone.get(task.spec.name)
        if sink and len(self.written(sink)) >= len(self.wanted[sink.query]):
            del self._undone[sink.name]
