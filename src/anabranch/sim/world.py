"""All sites, the coordinator and the network of one run, and what befalls them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from anabranch.errors import AnabranchError
from anabranch.sim.clock import Clock, Process
from anabranch.sim.coordinator import Catalog, SimCoordinator
from anabranch.sim.faults import COORDINATOR, Crash, Cut, Fault, Move, Pause, Strike
from anabranch.sim.network import Host, Network
from anabranch.sim.plan import Plan
from anabranch.sim.reference import Stream, first_difference, reference
from anabranch.sim.rows import Row
from anabranch.sim.site import Disk, SimSite
from anabranch.sim.task import SimTask
from anabranch.stream.restart import RestartPoint


class Violation(Exception):
    """Something happened that never may."""


class World:
    """`lines` collects one line per event if it is a list."""

    def __init__(self, plan: Plan, rng: Random, lines: list[str] | None = None) -> None:
        self.plan = plan
        self.rng = rng
        self.lines = lines
        self.clock = Clock()
        self.network = Network(self.clock, rng, plan.pace.delay)
        self.wanted: dict[str, Stream] = reference(plan)
        self.disks = {name: Disk() for name in plan.sites}
        self.catalog = Catalog(dict(plan.placed))
        self.sites: dict[str, SimSite] = {}
        self.coordinator = self._new_coordinator()
        self._pids = 0
        self._undone = {sink.name for sink in plan.sinks if self.wanted[sink.inputs[0]]}
        for name in plan.sites:
            self._boot(name)
        self._deploy()

    @property
    def done(self) -> bool:
        """Every sink has as many tuples as it should."""
        return not self._undone

    def written(self, sink: str) -> dict[int, Row]:
        return self.disks[self.plan.placed[sink]].sinks.get(sink, {})

    def log(self, site: str, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.clock.now:6} {site:12} {text}")

    # -- life ------------------------------------------------------------------------------------

    def _boot(self, name: str) -> None:
        self._pids += 1
        site = self.sites[name] = SimSite(self, name, self._pids)
        self.network.hosts[name] = Host(site.process, site.handlers())

    def _new_coordinator(self) -> SimCoordinator:
        coordinator = SimCoordinator(self)
        self.network.hosts[COORDINATOR] = Host(coordinator.process, coordinator.handlers())
        return coordinator

    def _deploy(self) -> None:
        """As `coordinator.deploy` leaves it: everybody is there before the first tuple."""
        sources = {one.name: one.site for one in self.plan.sources}
        at = sources | self.plan.placed
        for name, site in self.sites.items():
            read = [one for one in self.plan.sources if one.site == name]
            here = {task: tuple(at[one] for one in task.inputs) for task in self.plan.tasks
                    if at[task.name] == name}  # fmt: skip
            site.prepare(read, here)
            self.catalog.pids[name] = site.pid
        for task in self.plan.tasks:
            for index, stream in enumerate(task.inputs):
                self.sites[at[stream]].attach(stream, task.consumer(index), 0, None, 0)
        for site in self.sites.values():
            site.start({name: (RestartPoint(tuple(0 for _ in task.inlets), 0), 0)
                        for name, task in site.tasks.items()})  # fmt: skip
            site.start_sources()

    # -- faults ----------------------------------------------------------------------------------

    def suffer(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self.clock.after(fault.at, self._befall, fault)

    def _befall(self, fault: Fault) -> None:
        match fault:
            case Crash():
                self.crash(fault.site, fault.lasts)
            case Pause():
                self.pause(fault.site, fault.lasts)
            case Cut():
                self.log(fault.one, f"is cut off from {fault.other} for {fault.lasts}")
                self.network.cut(fault.one, fault.other, self.clock.now + fault.lasts)
            case Move():
                for site in self._who(fault.task, "standby"):
                    self.log(site.name, f"is asked to take over {fault.task}")
                    site.process.run(site.take_over, fault.task)
            case Strike():
                roles = ("primary", "standby") if fault.role == "both" else (fault.role,)
                for site in [one for role in roles for one in self._who(fault.task, role)]:
                    if fault.pauses:
                        self.pause(site.name, fault.lasts)
                    else:
                        self.crash(site.name, fault.lasts)

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
        self.network.died(process)
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
        wanted = self.wanted[stream][first - 1 : first - 1 + len(rows)]
        if wanted != list(rows):
            got = dict(enumerate(rows, 1))
            raise Violation(f"stream {stream} from {first} on: {first_difference(got, wanted)}")

    def failed(self, site: SimSite, task: SimTask, error: AnabranchError) -> None:
        kind = type(error).__name__
        raise Violation(f"{task.spec.name} ({task.role}) at {site.name}: {kind}: {error}")

    def progress(self, site: SimSite, task: SimTask) -> None:
        if task.spec.kind is None:
            name = task.spec.name
            if len(self.written(name)) >= len(self.wanted[task.spec.inputs[0]]):
                self._undone.discard(name)
