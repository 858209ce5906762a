"""A task on a site: inlets in front, a body, an outlet behind, and the restart points between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException

from anabranch.errors import AnabranchError, SinkError, TaskError
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import record_batches
from anabranch.plan.tasks import TaskSpec
from anabranch.site.analyse import complaint
from anabranch.site.body import Body, Produced, Taken, ages_s
from anabranch.site.jvm import NO_JVM, jvm
from anabranch.site.measures import Measures
from anabranch.site.pocket import PocketBody
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import RestartLog, RestartPoint, beyond

MAX_ROWS = 1_000_000
"""Tuples of one instance at most; their bytes are limited by what an inlet holds."""
WIRE_ROWS = 65_536
"""Tuples of one batch on a link at most."""


class Task:
    """States: `waiting` (not started) → `running` → `done` | `failed` | `stopped`.

    `on_release` is called when downstream acks have moved the restart point.
    """

    def __init__(
        self,
        spec: TaskSpec,
        body: Body,
        inlets: Sequence[LiveInlet],
        outlet: LiveOutlet | None,
        name_job: Callable[[str, str], None],
    ) -> None:
        self.spec = spec
        self.inlets = inlets
        self.outlet = outlet
        self.measures = Measures()
        self.state = "waiting"
        self.role = "primary"
        self.epoch = 0
        self._left = False
        self.processed = tuple(0 for _ in inlets)
        """The last position of each input whose results are out."""
        self.error: AnabranchError | None = None
        self.on_release: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Task], None] = lambda task: None
        self.on_early_end: Callable[[Task], None] = lambda task: None
        self.may_wait: Callable[[], bool] = lambda: False
        """There is perhaps nothing to do after all, if the next instance waits a little."""
        self._body = body
        self._name_job = name_job
        self._lock = threading.Lock()
        self._instance = threading.Lock()
        self._log = RestartLog(RestartPoint(tuple(0 for _ in inlets), 0))

    @property
    def rules(self) -> bool:
        """It is its stream's producer, and has begun: its epoch is known."""
        return self.role == "primary" and self.state != "waiting"

    def start(self, point: RestartPoint, epoch: int = 0) -> None:
        """Begin behind the inputs of `point`; the first output is numbered one above its."""
        self.epoch = epoch
        for inlet, position in zip(self.inlets, point.inputs, strict=True):
            inlet.start_at(position)
        self._log = RestartLog(point)
        self.processed = point.inputs
        if self.outlet:
            self.outlet.on_ack = self.acknowledge
            self.outlet.reign(epoch, standing_by=self.role == "standby")
            self.outlet.learn(point.readers)
        self._body.open(point.instant)
        self.state = "running"

    def restart(self, point: RestartPoint, inlets: Sequence[LiveInlet]) -> None:
        """Forget everything and begin anew at `point`, with other `inlets`. What was put out before
        is safe with those who read it, or follows again."""
        for inlet in self.inlets:
            inlet.close()
        with self._instance:
            self.inlets = inlets
            self.processed = point.inputs
            with self._lock:
                self._log = RestartLog(point)
                if self.state == "done":
                    self.state = "running"
            if self.outlet:
                self.outlet.start_at(point.output)
                self.outlet.learn(point.readers)
            self._body.reopen(point.instant)

    def take_over(self) -> None:
        """From a standby to the primary."""
        self.role = "primary"
        if self.outlet:
            self.outlet.reign(self.epoch)

    def idle_at(self) -> tuple[int, ...] | None:
        """How far it has taken its inputs; None while an instance runs."""
        return None if self._instance.locked() else tuple(inlet.taken for inlet in self.inlets)

    def warm_up(self) -> float:
        """Run on made-up input if there is nothing else to do; the seconds that took, else 0."""
        if self.state != "running" or any(inlet.waiting for inlet in self.inlets):
            return 0.0
        if not self._instance.acquire(blocking=False):
            return 0.0
        try:
            started = time.perf_counter()
            self._name_job(self.spec.query, f"{self.spec.name}: warming up")
            if not self._body.warm_up():
                return 0.0
            elapsed = time.perf_counter() - started
            self.measures.add_dry(time.monotonic(), elapsed)
            return elapsed
        finally:
            self._instance.release()

    def stop(self) -> None:
        """No instance begins any more."""
        with self._lock:
            if self.state in ("waiting", "running"):
                self.state = "stopped"

    def ready(self) -> bool:
        """An instance would have something to do, and room for what it produces."""
        if self.state != "running" or not any(inlet.ready for inlet in self.inlets):
            return False
        if self.may_wait():
            return False
        return self.outlet is None or self.outlet.room()

    def run_instance(self) -> None:
        """Take what waits, process it, pass the results on. Never raises: a failure is a state."""
        with self._instance:
            inlets = self.inlets
            try:
                self._run_instance()
            except Exception as error:
                self.fail(explain(error, self.spec))
            finally:
                for inlet in inlets:
                    inlet.done()

    def _run_instance(self) -> None:
        started = time.perf_counter()
        taken = [self._take(inlet) for inlet in self.inlets]
        rows = sum(one.rows for one in taken)
        if rows:
            self._name_job(self.spec.query, f"{self.spec.name}: {rows} tuples")
        produced = self._body.step(taken)
        self._emit(produced)
        self.processed = tuple(one.last for one in taken)
        if rows:
            ages = ages_s(produced.table, time.time_ns() // 1000)
            elapsed = time.perf_counter() - started
            self.measures.add(time.monotonic(), rows, len(produced.table), elapsed, ages)
        if produced.watermark == END_WATERMARK:
            self._finish()

    def _finish(self) -> None:
        """Nothing can come out any more."""
        with self._lock:
            if self.state == "running":
                self.state = "done"
        self._leave_early()

    def _leave_early(self) -> None:
        """Inputs that have not ended need not wait for us, once what we made of them is safe."""
        with self._lock:
            safe = self.outlet is None or self._log.current.output >= self.outlet.last
            if self.state != "done" or self._left or not safe:
                return
            self._left = True
        if not all(inlet.drained for inlet in self.inlets):
            self.on_early_end(self)

    def _take(self, inlet: LiveInlet) -> Taken:
        batches = inlet.take(MAX_ROWS)
        return Taken(list(batches), inlet.taken, inlet.watermark)

    def _emit(self, produced: Produced) -> None:
        """Append first, then record where a restart would begin: never the other way round."""
        if self.outlet:
            pieces = record_batches(produced.table, WIRE_ROWS)
            position = self.outlet.append(pieces, produced.watermark)
        else:
            position = max(produced.needless)
        with self._lock:
            self._log.add(RestartPoint(produced.needless, position, produced.instant))
        if not self.outlet or not self.outlet.consumers:
            self.acknowledge(position)

    def acknowledge(self, position: int) -> None:
        """Downstream has received everything up to `position` (Level-0): pass it on (Level-1)."""
        with self._lock:
            moved = self._log.acknowledge(position)
        if moved:
            self.on_release()
            self._leave_early()

    def learn(self, point: RestartPoint) -> None:
        """Another run of this task got acks for `point`."""
        with self._lock:
            self._log.learn(point)
        if self.outlet:
            self.outlet.learn(point.readers)

    def restart_point(self) -> RestartPoint:
        """Its readers' points are at least as new: they are asked afterwards, and only rise."""
        with self._lock:
            point = self._log.current
        if self.outlet is None:
            return point
        return replace(point, readers=beyond(self.spec.name, self.outlet.readers()))

    def fail(self, error: AnabranchError) -> None:
        with self._lock:
            if self.state == "failed":
                return
            self.state, self.error = "failed", error
        self.on_failure(self)

    def close(self) -> None:
        """Stop for good; what was handed to a sink stays whole."""
        self.stop()
        for inlet in self.inlets:
            inlet.close()
        self._body.close()

    def report(self) -> dict[str, Any]:
        return {
            "name": self.spec.name,
            "query": self.spec.query,
            "site": self.spec.site,
            "output": self.spec.output,
            "state": self.state,
            "role": self.role,
            "epoch": self.epoch,
            "error": self.error.to_dict() if self.error else None,
            "sink": self.spec.sink.name if self.spec.sink else None,
            "queue": sum(inlet.waiting for inlet in self.inlets),
            "position": self.outlet.last if self.outlet else self.inlets[0].taken,
            "pocket": self._body.report() if isinstance(self._body, PocketBody) else None,
            **self.measures.report(time.monotonic()),
        }


def explain(error: Exception, spec: TaskSpec) -> AnabranchError:
    """Any exception of a body as one line that names the query."""
    if how := jvm.end(error.__cause__ or error):
        text = f"query {spec.query} failed: Spark's JVM has ended ({how})"
        return TaskError(text, place=spec.site, remedy=NO_JVM)
    if isinstance(error, SinkError):
        error.message = f"query {spec.query}: {error.message}"
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, PySparkException):
        return TaskError(f"query {spec.query} failed: {complaint(error)}", place=spec.site)
    text = (str(error).strip() or repr(error)).splitlines()[0]
    return TaskError(f"query {spec.query} failed: {type(error).__name__}: {text}", place=spec.site)
