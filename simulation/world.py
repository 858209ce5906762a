"""All sites, the coordinator and the network of one run, and what befalls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from anabranch.coordinator.protection.assignments import Assignments
from anabranch.errors import CannotResume
from anabranch.plan.catalog import QueryDef
from simulation.bodies import Places, Sinks
from simulation.clock import Clock, Process, Violation
from simulation.coordinator import SimCoordinator
from simulation.disk import Disk
from simulation.edges import Edge
from simulation.faults import COORDINATOR, Fault
from simulation.injection import Injection
from simulation.kept_catalog import KeptCatalog
from simulation.ledger import Ledger
from simulation.network import Wires
from simulation.outages import Outage
from simulation.plan import Plan, SinkPlan
from simulation.rows import Row
from simulation.site import SimSite
from simulation.statements import Script, first_script
from simulation.topics import Topic
from simulation.truths import past, truths
from simulation.user import User

if TYPE_CHECKING:
    from anabranch.site.tasks.task import Task

LOOK_MS = 50
STUCK_MS = 10_000
"""So long a run goes on in which a stream has been refused."""
Suffered = Fault | Edge | Outage


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
        self._shared: dict[str, Sinks] = {one.name: {} for one in plan.sinks if one.site is None}
        self.places = {name: Places(self._shared) for name in plan.sites}
        self.disks = {name: Disk(Random(rng.random())) for name in plan.sites}
        self.catalog = KeptCatalog()
        self.topics = {one.name: Topic(one) for one in plan.sources}
        self.ledger = Ledger(plan.sources, lambda task: Assignments(self.catalog).incarnation(task))
        self.deployed = False
        self.done = False
        """Everything is as it should be."""
        self.wrong = ""
        """What is not, as far as somebody looked."""
        self.moved = 0
        self.warranted: dict[str, str] = {}
        """Streams that may be unable to go on, and why: what their sites kept, or what they read,
        is not what it was."""
        self.gone: set[str] = set()
        """Sites that never come back: what a user wants to run there cannot be done."""
        self.stuck: dict[str, CannotResume] = {}
        """Those that have said so."""
        self._skew = {name: rng.choice((0, 0, 300, 7_000)) for name in (*plan.sites, COORDINATOR)}
        self.walls = dict(self._skew)
        """By how much wall clocks are ahead."""
        self.sites: dict[str, SimSite] = {}
        self.coordinator = self._new_coordinator()
        self._pids = 0
        self._last_fault = 0
        self._faults: tuple[Suffered, ...] = ()
        self._scripts: tuple[Script, ...] = ()
        self.injection = Injection(self)
        for name in plan.sites:
            self._boot(name)
        self.user = User(self, [first_script(plan)])
        self.clock.after(LOOK_MS, self._look)

    def written(self, sink: SinkPlan) -> dict[int, Row]:
        """What the creation of its query that is in the catalog has written there."""
        query = self.catalog.definitions().get(sink.query)
        where = sink.site or self.plan.sites[0]
        if not isinstance(query, QueryDef):
            return {}
        return self.places[where].sink(sink.name, query.run).rows

    def all_sinks(self) -> Iterator[tuple[tuple[str, str], dict[int, Row]]]:
        """Sink task and run → what is there."""
        kinds = [*self._shared.values(), *(one.own for one in self.places.values())]
        return ((key, place.rows) for one in kinds for key, place in one.items())

    def log(self, site: str, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.clock.now:6} {site:12} {text}")

    def warrant_at(self, site: str, why: str) -> None:
        for source in self.plan.sources:
            if source.site == site:
                self.warranted.setdefault(source.name, why)

    def refused(self, stream: str, error: CannotResume, final: bool) -> None:
        """A site says that a stream cannot go on: for good only if there is a reason."""
        self.log(stream, f"cannot go on: {error}")
        if stream in self.warranted:
            self.stuck[stream] = error
        elif final:
            raise Violation(f"stream {stream} is refused without a reason: {error}")

    def close(self) -> None:
        for process in self._processes:
            process.bury()

    # -- life ------------------------------------------------------------------------------------

    def _boot(self, name: str) -> None:
        self._pids += 1
        site = self.sites[name] = SimSite(self, name, self._pids)
        site.process.kill = partial(self.crash, name)
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

    def script_over(self) -> None:
        """After the first script, things begin to go wrong."""
        if not self.deployed:
            self.deployed = True
            self.log(COORDINATOR, "has deployed everything")
            self._schedule(self._faults)
            self.user.also(self._scripts)

    # -- faults ----------------------------------------------------------------------------------

    def suffer(
        self,
        faults: Sequence[Suffered],
        scripts: Sequence[Script] = (),
        *,
        at_once: bool = False,
    ) -> None:
        """Once everything is deployed, or `at_once`, while it is."""
        if at_once:
            self._schedule(faults)
            self.user.also(scripts)
        else:
            self._faults, self._scripts = tuple(faults), tuple(scripts)

    def _schedule(self, faults: Sequence[Suffered]) -> None:
        self.injection.schedule(faults)
        self._last_fault = self.clock.now + max((one.at for one in faults), default=0)

    def _process(self, name: str) -> Process:
        return self.coordinator.process if name == COORDINATOR else self.sites[name].process

    def crash(self, name: str, lasts: int | None) -> None:
        process = self._process(name)
        if self._ends(process, f"dies, for {lasts}"):
            self.wires.died(process)
            if lasts is None:
                self.gone.add(name)
            else:
                self.clock.after(lasts, self._come_back, name)

    def vanish(self, name: str, lasts: int) -> None:
        """As a crash of which nobody is told."""
        process = self._process(name)
        if self._ends(process, f"vanishes, for {lasts}"):
            self.wires.vanished(process)
            if self.plan.synced:
                self.disks[name].lose_power()
            self.clock.after(lasts, self._appear, name, process)

    def _ends(self, process: Process, said: str) -> bool:
        if not process.alive:
            return False
        self.log(process.name, said)
        if disk := self.disks.get(process.name):
            disk.kill(process.under_way)
            disk.fuse = None
        process.alive = process.paused = False
        process.deferred.clear()
        return True

    def _appear(self, name: str, process: Process) -> None:
        self.wires.appeared(process)
        self._come_back(name)

    def _come_back(self, name: str) -> None:
        self.log(name, "is back")
        if name == COORDINATOR:
            self.catalog = KeptCatalog(self.catalog)
            self.coordinator = self._new_coordinator()
        else:
            self._boot(name)

    def pause(self, name: str, lasts: int) -> None:
        process = self._process(name)
        if process.alive and not process.paused:
            self.log(name, f"stands still for {lasts}")
            process.paused = True
            self.clock.after(lasts, self._go_on, name, process)

    def set_clock(self, name: str, ahead: int) -> None:
        self.log(name, f"has its clock set, to be ahead by {ahead}")
        self.walls[name] = ahead
        self._process(name).wall_ahead = ahead

    def fill(self, name: str, lasts: int) -> None:
        """A site's disk takes nothing for a while."""
        self.log(name, f"has a full disk for {lasts}")
        self.disks[name].full = True
        self.clock.after(lasts, self._free, name)

    def _free(self, name: str) -> None:
        self.log(name, "has room on its disk again")
        self.disks[name].full = False

    def trouble(self, name: str, share: float, lasts: int) -> None:
        """So many of the calls that block fail in that process, whatever they do."""
        process = self._process(name)
        self.log(name, f"fails {share:.0%} of what blocks for {lasts}")
        process.failing = share
        self.clock.after(lasts, setattr, process, "failing", 0.0)

    def _go_on(self, name: str, process: Process) -> None:
        if process.paused:
            self.log(name, "goes on")
            process.go_on()

    # -- what must hold --------------------------------------------------------------------------

    def _look(self) -> None:
        self.clock.after(LOOK_MS, self._look)
        if self.stuck:  # the rest waits for a person; what has come of it is right
            self.wrong = next(past(self), "")
            self.done = self.clock.now > self._last_fault + STUCK_MS
        elif self.user.content:
            self.wrong = next(truths(self), "")
            self.done = not self.wrong

    def progress(self, task: Task) -> None:
        """A task has taken a step."""
