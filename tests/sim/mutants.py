"""The protocol with one rule broken at a time; the simulation must notice each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from anabranch.errors import AnabranchError, Gap
from anabranch.sim import operators
from anabranch.sim.clock import Steps
from anabranch.sim.coordinator import Catalog
from anabranch.sim.links import Links
from anabranch.sim.network import Connection
from anabranch.sim.operators import Produced, Taken
from anabranch.sim.outlet import SimOutlet
from anabranch.sim.rows import Rows
from anabranch.sim.site import SimSite
from anabranch.sim.task import SimTask
from anabranch.standby.secondary import Restart, Secondary
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.outlet import Consumer, Outlet
from anabranch.stream.restart import RestartPoint
from anabranch.stream.routes import Routes

Mutant = Callable[[pytest.MonkeyPatch], None]


def windows_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Inputs are released as soon as they were taken, whatever open windows need."""
    for kind in (operators._CountTime, operators._CountRows, operators._Join):

        def step(
            self: operators.Operator,
            inputs: Sequence[Taken],
            whole: Callable[[operators.Operator, Sequence[Taken]], Produced] = kind.step,
        ) -> Produced:
            return replace(whole(self, inputs), needless=tuple(one.last for one in inputs))

        patch.setattr(kind, "step", step)


def receipt_releases(patch: pytest.MonkeyPatch) -> None:
    """A tuple is let go of when it has merely arrived."""
    whole = Outlet.level0

    def level0(self: Outlet[Rows], consumer: str, position: int, epoch: int, reign: int) -> None:
        whole(self, consumer, position, epoch, reign)
        if known := self.consumers.get(consumer):
            known.released = max(known.released, known.received)
        self._release()

    patch.setattr(Outlet, "level0", level0)


def level0_moves_the_point(patch: pytest.MonkeyPatch) -> None:
    """A task's restart point follows what its consumers received, not what they need no more."""

    def acknowledged(self: Outlet[Rows]) -> int:
        return min((one.received for one in self.consumers.values()), default=self.last)

    patch.setattr(Outlet, "acknowledged", acknowledged)


def nobody_is_superseded(patch: pytest.MonkeyPatch) -> None:
    """Those who ruled before go on to be served and believed. Since restart points hold for any
    ruler, that does no harm as long as one who was overtaken goes on where it is told to."""
    gaps_are_final(patch)

    def ruling(self: Outlet[Rows], consumer: str, epoch: int) -> Consumer | None:
        return self.consumers.get(consumer)

    patch.setattr(Outlet, "_ruling", ruling)


def outputs_are_counted(patch: pytest.MonkeyPatch) -> None:
    """A standby that begins anew goes on with its own numbers instead of the point's."""
    whole = SimOutlet.start_at

    def start_at(self: SimOutlet, position: int) -> None:
        whole(self, self.outlet.last or position)

    patch.setattr(SimOutlet, "start_at", start_at)


def epochs_come_twice(patch: pytest.MonkeyPatch) -> None:
    """Two standbys are given the same epoch."""

    def next_epoch(self: Catalog) -> int:
        self.epoch += 1
        return (self.epoch + 3) // 4

    patch.setattr(Catalog, "next_epoch", next_epoch)


def released_counts_as_shipped(patch: pytest.MonkeyPatch) -> None:
    """A standby hears a watermark that lies behind tuples it never got."""

    def heartbeat(self: Outlet[Rows], consumer: str) -> tuple[int, RestartPoint | None]:
        known = self.consumers[consumer]
        shipped = known.backup.shipped if known.backup else 0
        there = max(shipped, known.released) >= self.last
        return self.watermark if there else START_WATERMARK, known.restart

    patch.setattr(Outlet, "heartbeat", heartbeat)


def points_are_told_first(patch: pytest.MonkeyPatch) -> None:
    """Others hear of restart points that a crash would still undo."""

    def save_points(self: SimSite, tasks: object) -> None:
        """Never."""

    patch.setattr(SimSite, "save_points", save_points)


def others_are_not_replayed(patch: pytest.MonkeyPatch) -> None:
    """A standby that begins anew behind a gap does so without what it was shipped of others."""
    whole = Secondary._restart

    def restart(self: Secondary[Rows]) -> Restart[Rows]:
        point, kept = whole(self).point, whole(self).kept
        return Restart(point, (kept[0], *(() for _ in kept[1:])))

    patch.setattr(Secondary, "_restart", restart)


def old_connections_are_shipped_to(patch: pytest.MonkeyPatch) -> None:
    """A connection that the standby has given up takes shipments from the one it has now."""

    def ship(
        self: SimOutlet, link: Connection, consumer: str, after: int, epoch: int, batch: int
    ) -> None:
        self._shippers[consumer] = self
        try:
            self._serves()
            self.outlet.back_up(consumer, epoch, batch, after)
        except AnabranchError as error:
            link.send(error)
            return
        self._process.spawn(self._ship(link, consumer, after, epoch, self))

    patch.setattr(SimOutlet, "ship", ship)


def gaps_are_final(patch: pytest.MonkeyPatch) -> None:
    """A ruler that an earlier one's late acks have overtaken fails instead of going on there."""

    def rejoin(self: Links, task: SimTask, index: int) -> Steps:
        task.fail(Gap(f"{task.spec.name} lacks tuples of {task.spec.inputs[index]}"))
        yield 0

    patch.setattr(Links, "_rejoin", rejoin)


def readers_are_not_told_of(patch: pytest.MonkeyPatch) -> None:
    """Who knows where a task restarts does not know it of those that read it."""
    patch.setattr(Outlet, "readers", lambda self: {})


def only_rulers_say_so(patch: pytest.MonkeyPatch) -> None:
    """That a site rules is believed from itself alone, not from those it has told."""
    patch.setattr(Routes, "rulers", lambda self: {})
