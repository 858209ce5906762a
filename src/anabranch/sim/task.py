"""`site.task` without Spark: inlets in front, an operator, an outlet behind, restart points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.errors import AnabranchError
from anabranch.sim.operators import Operator, Produced, Taken
from anabranch.sim.outlet import SimOutlet
from anabranch.sim.plan import TaskSpec
from anabranch.sim.rows import Row, Rows
from anabranch.stream.batch import END_WATERMARK, Batch
from anabranch.stream.inlet import Inlet
from anabranch.stream.restart import RestartLog, RestartPoint

SimInlet = Inlet[Rows]


class SinkOperator:
    """Writes what is not yet there, for good."""

    def __init__(self, written: dict[int, Row]) -> None:
        self._written = written
        self._known = 0

    def open(self, instant: int) -> None:
        self._known = max(self._written, default=0)

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        for position, ts, value in taken.rows:
            if position > self._known:
                self._written[position] = ts, value
        return Produced([], taken.watermark, (taken.last,))


class SimTask:
    """`sites`: where its inputs were produced when it was deployed."""

    def __init__(
        self,
        spec: TaskSpec,
        operator: Operator,
        sites: tuple[str, ...],
        outlet: SimOutlet | None,
    ) -> None:
        self.spec = spec
        self.sites = sites
        self.inlets = [SimInlet(name) for name in spec.inputs]
        self.outlet = outlet
        self.state = "waiting"
        self.role = "primary"
        self.epoch = 0
        self.scheduled = False
        self.lazy = False
        """Its instances wait for acks that make them needless, as a standby's do under load."""
        self.on_release: Callable[[], None] = lambda: None
        self.on_failure: Callable[[AnabranchError], None] = lambda error: None
        self._operator = operator
        self._log = RestartLog(RestartPoint(tuple(0 for _ in spec.inputs), 0))

    def start(self, point: RestartPoint, epoch: int) -> None:
        self.epoch = epoch
        self._begin_at(point)
        if self.outlet:
            self.outlet.on_ack = self.acknowledge
            self.outlet.reign(epoch, standing_by=self.role == "standby")
        self.state = "running"

    def restart(self, point: RestartPoint, kept: tuple[tuple[Batch[Rows], ...], ...]) -> None:
        """Forget everything and begin anew at `point`, with what is `kept` of the inputs."""
        self._begin_at(point)
        for inlet, batches in zip(self.inlets, kept, strict=True):
            for batch in batches:
                inlet.offer(batch)
        if self.state == "done":
            self.state = "running"
        if self.outlet:
            self.outlet.start_at(point.output)

    def _begin_at(self, point: RestartPoint) -> None:
        named = zip(self.spec.inputs, point.inputs, strict=True)
        self.inlets = [SimInlet(name, position) for name, position in named]
        self._log = RestartLog(point)
        self._operator.open(point.instant)
        if self.outlet:
            self.outlet.outlet.learn(point.readers)

    def take_over(self) -> None:
        self.role = "primary"
        if self.outlet:
            self.outlet.reign(self.epoch)

    def idle_at(self) -> tuple[int, ...] | None:
        """How far it has taken its inputs; None while an instance runs, as long as it takes."""
        if self.scheduled and not self.lazy:
            return None
        return tuple(inlet.taken for inlet in self.inlets)

    def ready(self) -> bool:
        return self.state == "running" and any(one.progress for one in self.inlets)

    def run_instance(self) -> None:
        """Take what waits, process it, pass the results on; then record where a restart begins."""
        produced = self._operator.step([_take(inlet) for inlet in self.inlets])
        if self.outlet:
            position = self.outlet.append(produced.rows, produced.watermark)
        else:
            position = max(produced.needless)
        self._log.add(RestartPoint(produced.needless, position, produced.instant))
        if not self.outlet or not self.outlet.outlet.consumers:
            self.acknowledge(position)
        if produced.watermark == END_WATERMARK:
            self.state = "done"

    def acknowledge(self, position: int) -> None:
        if self._log.acknowledge(position):
            self.on_release()

    def learn(self, point: RestartPoint) -> None:
        self._log.learn(point)
        if self.outlet:
            self.outlet.outlet.learn(point.readers)

    def restart_point(self) -> RestartPoint:
        readers = self.outlet.outlet.readers() if self.outlet else {}
        return replace(self._log.current, readers=readers)

    def fail(self, error: AnabranchError) -> None:
        if self.state != "failed":
            self.state = "failed"
            self.on_failure(error)


def _take(inlet: SimInlet) -> Taken:
    rows = [
        (position, ts, value)
        for batch in inlet.take(2**62)
        for position, (ts, value) in enumerate(batch.data.rows, batch.first)
    ]
    return Taken(rows, inlet.taken, inlet.watermark)
