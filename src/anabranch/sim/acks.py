"""`site.acks` without threads: what arrived and what is no longer needed, to one site upstream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError
from anabranch.sim.clock import Signal, Steps
from anabranch.sim.task import SimTask
from anabranch.stream.restart import RestartPoint

if TYPE_CHECKING:
    from anabranch.sim.site import SimSite


@dataclass(frozen=True, slots=True)
class Ack:
    """Both levels; `received` is missing when only the restart point has moved."""

    stream: str
    consumer: str
    epoch: int
    reign: int
    received: int | None
    point: RestartPoint
    index: int


def ack_of(task: SimTask, index: int, level0: bool) -> Ack:
    inlet = task.inlets[index]
    return Ack(
        task.spec.inputs[index],
        task.spec.consumer(index),
        inlet.epoch,
        task.epoch,
        inlet.received if level0 else None,
        task.restart_point(),
        index,
    )


class AckSender:
    """To one site upstream."""

    def __init__(
        self,
        site: SimSite,
        collect: Callable[[bool], list[Ack]],
        send: Callable[[list[Ack]], Steps],
    ) -> None:
        self._site, self._collect, self._send = site, collect, send
        self._woken = False
        self._wake = Signal()
        site.process.spawn(self._run())

    def released(self) -> None:
        self._woken = True
        self._wake.notify()

    def _run(self) -> Steps:
        clock, pace = self._site.process.clock, self._site.pace
        due = sent = 0
        last: list[Ack] = []
        while True:
            if not self._woken and due > clock.now:
                yield self._wake, due - clock.now
            self._woken = False
            level0 = clock.now >= due
            if level0:
                due = clock.now + pace.ack
            acks = self._collect(level0)
            told = level0 and acks == last and clock.now < sent + pace.repeat
            if acks and not told:
                try:
                    yield from self._send(acks)
                    last, sent = acks, clock.now
                except AnabranchError:
                    due = clock.now + pace.ack
