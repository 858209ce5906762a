"""All sites, the coordinator and the network of one run, and what befalls them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from anabranch.coordinator.control.catalog import Catalog
from simulation.bodies import Disk, Written
from simulation.clock import Clock, Process, Violation
from simulation.coordinator import SimCoordinator
from simulation.edges import Edge
from simulation.faults import COORDINATOR, Fault
from simulation.injection import Injection
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
        self._faults: tuple[Fault | Edge, ...] = ()
        self.injection = Injection(self)
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
        self.injection.schedule(self._faults)

    # -- faults ----------------------------------------------------------------------------------

    def suffer(self, faults: Sequence[Fault | Edge]) -> None:
        """Once everything is deployed."""
        self._faults = tuple(faults)

    def _process(self, name: str) -> Process:
        return self.coordinator.process if name == COORDINATOR else self.sites[name].process

    def crash(self, name: str, lasts: int | None) -> None:
        process = self._process(name)
        if self._ends(process, f"dies, for {lasts}"):
            self.wires.died(process)
            if lasts is not None:
                self.clock.after(lasts, self._come_back, name)

    def vanish(self, name: str, lasts: int) -> None:
        """As a crash of which nobody is told."""
        process = self._process(name)
        if self._ends(process, f"vanishes, for {lasts}"):
            self.wires.vanished(process)
            self.clock.after(lasts, self._appear, name, process)

    def _ends(self, process: Process, said: str) -> bool:
        if not process.alive:
            return False
        self.log(process.name, said)
        process.alive = process.paused = False
        process.deferred.clear()
        return True

    def _appear(self, name: str, process: Process) -> None:
        self.wires.appeared(process)
        self._come_back(name)

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
