"""The shortest ways over other sites. A pair measured one way only is taken to be as far the other
way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from pyspark.errors import PySparkException

from anabranch.deadline.urgency import NO_DEADLINE
from anabranch.errors import AnabranchError, ProtocolError, SinkError, TaskError
from anabranch.link.inlet import LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import PlanReport, TaskReport
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime
from anabranch.site.tasks.body import (
    Body,
    Interruptible,
    Produced,
    Remembering,
    Reporting,
    Snapshotting,
    Taken,
)
from anabranch.site.tasks.measures import Measures
from anabranch.site.tasks.snapshots import States, TaskState
from anabranch.site.tasks.timeliness import Timeliness
from anabranch.snapshot.state import KeptPieces
from anabranch.spark.analyse import complaint
from anabranch.spark.jobs import Jobs
from anabranch.spark.jvm import NO_JVM, jvm
from anabranch.standby.detector import Patience
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import FOREVER, RestartLog, RestartPoint, SnapshotName, beyond

GRACE_S = 2.0
"""How long an instance that was asked to end may take for it."""
LONG = 0.25
"""An instance that takes this part of its limit is followed by smaller ones."""
WIRE_ROWS = 65_536
"""Tuples of one batch on a link at most."""


class Owner(Protocol):
    """Is told what happens to a task."""

    def consider(self, task: Task) -> None:
        """Takes note that there may be something for it to do."""

    def released(self, task: Task) -> None:
        """Takes note that downstream acks have moved its restart point."""

    def failed(self, task: Task) -> None: ...

    def giving(self, task: Task, pieces: Sequence[Any], produced: Produced) -> None:
        """Takes note that it is about to give these. Called in the thread of the instance, which
        may wait: what must be kept before anybody hears of it is kept here.
        """

    def ended_early(self, task: Task) -> None:
        """Takes note that it has ended before its inputs have; its results from them are safe."""

    def stood_by_for(self, task: Task) -> bool:
        """Another site would take over from what its inputs hold."""

    async def fetch_state(self, task: Task, name: SnapshotName) -> KeptPieces | None:
        """Fetches the state from the site that kept it; None if it is not there (any more). Raises
        SiteError while that site is away.
        """


class Task:
    """States: `waiting` (not started) → `running` → `done` | `failed` | `stopped`."""

    def __init__(
        self,
        runtime: Runtime,
        owner: Owner,
        spec: TaskSpec,
        body: Body,
        inlets: Sequence[LiveInlet[Any]],
        outlet: LiveOutlet[Any] | None,
        jobs: Jobs,
        plans: Callable[[], tuple[PlanReport, ...]] = tuple,
        batch: int = 1_000_000,
        states: States | None = None,
    ) -> None:
        """`plans` tells how its expressions are evaluated; an instance takes `batch` tuples of an
        input at most. With `states` its own is kept now and then, if it has one."""
        self.spec = spec
        self.inlets = inlets
        self.outlet = outlet
        self.measures = Measures()
        self.timeliness = Timeliness(spec.urgency, spec.deadline_us, self.measures)
        self.state = "waiting"
        self.role = "primary"
        self.epoch = 0
        self._left = False
        self.processed = tuple(0 for _ in inlets)
        """The last position of each input whose results are out."""
        self.error: AnabranchError | None = None
        self._owner = owner
        self._patience: Patience | None = None
        self._body = body
        self._jobs = jobs
        self._plans = plans
        self._batch = batch
        self._more = False
        """The body has been cut short, and goes on before it takes anything else."""
        self._runtime = runtime
        self.busy = False
        """An instance runs."""
        self._instance = 0
        """Its number."""
        self._ending = 0
        """The one that has been asked to end."""
        self._ran_s = 0.0
        """How long it has run so far."""
        self._on: list[tuple[str, int, int]] = []
        """What it has taken: stream, first and last position."""
        self._long_us: int | None = None
        """How long instances are to take at most, once one has come near its limit."""
        self._overran: TaskError | None = None
        self._rested = runtime.signal()
        self._taken_from = inlets
        self._log = RestartLog(RestartPoint(tuple(0 for _ in inlets), 0))
        self._kept = None
        if states and isinstance(body, Snapshotting):
            self._kept = TaskState(runtime, states, spec, body)

    @property
    def produces(self) -> bool:
        """Whether it is its stream's producer, and has begun: its epoch is known."""
        return self.role == "primary" and self.state != "waiting"

    @property
    def cut_off(self) -> bool:
        """Whether it has failed because its inputs are gone. This need not happen to another run of
        it, as an error of its query would.
        """
        return self.state == "failed" and isinstance(self.error, ProtocolError)

    async def start(
        self, point: RestartPoint, epoch: int = 0, patience: Patience | None = None
    ) -> None:
        """Begins after the inputs of `point`; the first output is numbered one above its. A standby
        with `patience` puts its work off until it takes over.
        """
        self.epoch, self._patience = epoch, patience
        kept = await self._kept_at(point)
        for inlet, position in zip(self.inlets, point.inputs, strict=True):
            inlet.start_at(position)
        self._log = RestartLog(point)
        self.processed = point.inputs
        if self.outlet:
            self.outlet.produced_by(self)
            self.outlet.produce_in(epoch, standing_by=self.role == "standby")
            self.outlet.learn(point.readers)
        self.busy = True  # whoever drops it meanwhile waits for that, too
        try:
            await self._open(point, self._body.open, kept)
        finally:
            self._rest()
        if self.state == "waiting":
            self.state = "running"
        self._end_if_finished(point)

    async def restart(self, point: RestartPoint, inlets: Sequence[LiveInlet[Any]]) -> None:
        """Forget everything and begin anew at `point`, with other `inlets`. What was put out before
        is safe with those who read it, or follows again. The state that `point` names is waited
        for."""
        kept = await self._kept_at(point, patient=True)
        for inlet in self.inlets:
            inlet.close()
        await self.settled()
        self.busy = True
        self._more = False
        try:
            await self._open(point, self._body.reopen, kept)
        finally:
            self._rest()
        self.inlets = inlets
        self.processed = point.inputs
        self._log = RestartLog(point)
        if self.state == "done":
            self.state = "running"
        if self.outlet:
            self.outlet.start_at(point.output)
            self.outlet.learn(point.readers)
        self._end_if_finished(point)

    async def _kept_at(self, point: RestartPoint, *, patient: bool = False) -> KeptPieces | None:
        """The state that a run from `point` on begins with. Raises TaskError if it is nowhere, and
        SiteError if it is at a site that is away, or with `patient` waits for that."""
        if point.snapshot is None:
            return None
        if self._kept is None:
            raise TaskError(f"{self.spec.name} has no state to restore", place=self.spec.site)

        def waits() -> bool:
            return patient and self.state not in ("stopped", "failed")

        return await self._kept.find(point.snapshot, partial(self._owner.fetch_state, self), waits)

    async def _open(
        self, point: RestartPoint, open_body: Callable[[int], None], kept: KeptPieces | None
    ) -> None:
        body = self._body
        if not isinstance(body, Remembering):
            await self._runtime.blocking(open_body, point.instant)
            if kept and self._kept:
                await self._runtime.blocking(self._kept.restore, kept)
            return
        body.begin_after(point.inputs[0])
        await self._runtime.blocking(open_body, point.instant)
        if body.lost:
            self.fail(body.lost)

    def _end_if_finished(self, point: RestartPoint) -> None:
        """Ends the task if an earlier run has put everything out: only the end is still to be
        told.
        """
        if point.finished and self.state == "running":
            self.state, self._left = "done", True
            if self.outlet:
                self.outlet.end()

    async def settled(self, seconds: float = math.inf) -> bool:
        """Waits until no instance runs; False if that takes longer."""
        deadline = self._runtime.now() + seconds
        while self.busy:
            left = deadline - self._runtime.now()
            if left <= 0:
                return False
            await self._rested.wait(None if left == math.inf else left)
        return True

    def abandon(self) -> None:
        """Abandons an instance that hangs and that nobody waits for any more: it must do no more
        harm.
        """

    def _rest(self) -> None:
        self.busy = False
        self._rested.notify()

    def take_over(self) -> None:
        """Turns from a standby into the primary."""
        self.role, self._patience = "primary", None
        if self.outlet:
            self.outlet.produce_in(self.epoch)

    def idle_at(self) -> tuple[int, ...] | None:
        """How far it has taken its inputs; None while an instance runs or is being ended."""
        return None if self.busy or self._more else tuple(inlet.taken for inlet in self.inlets)

    def warm_up(self) -> float:
        """Runs on generated input if there is nothing else to do; returns the seconds that took,
        else 0. Called in a thread that may take its time.
        """
        with self._runtime:
            if self.busy or self._more or self.state != "running":
                return 0.0
            if any(one.waiting for one in self.inlets):
                return 0.0
            self.busy = True
        try:
            started = time.perf_counter()
            self._jobs.begin(f"{self.spec.name}: warming up")
            if not self._body.warm_up():
                return 0.0
            elapsed = time.perf_counter() - started
            self.measures.add_dry(time.monotonic(), elapsed)
            return elapsed
        finally:
            with self._runtime:
                self._rest()

    def stop(self) -> None:
        """Stops: no instance begins any more, and a running one ends soon."""
        with self._runtime:
            if self.state in ("waiting", "running"):
                self.state = "stopped"
            if self.state == "stopped" and self.busy and self._ending != self._instance:
                self._runtime.spawn(self._end_instance(), f"stopping {self.spec.name}")

    def ran(self, seconds: float, limit_s: float) -> None:
        """Takes note that time has passed; an instance that has run too long is ended, and the
        query fails. What writes to the world, and a user's own program, have limits of their own.
        """
        if not self.busy or self._overran or self.spec.sink or self.spec.pocket:
            return
        self._ran_s += seconds
        if self._ran_s > limit_s * LONG:
            self._long_us = int(limit_s * LONG * 1e6)
        if self._ran_s > limit_s and self.state == "running":
            self._overran = self._too_long(limit_s)
            self._runtime.spawn(self._end_instance(), f"stopping {self.spec.name}")

    def _too_long(self, limit_s: float) -> TaskError:
        on = [f"tuples {first} to {last} of {stream}" for stream, first, last in self._on]
        return TaskError(
            f"query {self.spec.query} failed: an instance ran for more than {limit_s:g} s"
            f" on {' and '.join(on) or 'what it had taken before'}, and was stopped",
            place=self.spec.site,
            remedy="Look there for what its expressions never finish, such as a pattern of nested"
            " repetitions. If it only needs longer, raise instance_limit under [cluster].",
        )

    async def _end_instance(self) -> None:
        """Asks the instance to end; if it does not, leaves it alone with what it does."""
        self._runtime.spawn(self._runtime.blocking(self._interrupt), f"interrupt {self.spec.name}")
        self._ending = instance = self._instance
        end = self._runtime.now() + GRACE_S
        while self.busy and self._instance == instance:
            if self._runtime.now() >= end:
                if isinstance(self._body, Interruptible):
                    self._body.abandon()
                break
            await self._rested.wait(end - self._runtime.now())
        end += GRACE_S
        while self.busy and self._instance == instance and self._runtime.now() < end:
            await self._rested.wait(end - self._runtime.now())
        if self._overran and self._instance == instance:  # its thread may hang for good
            self.fail(self._overran)

    def _interrupt(self) -> None:
        if isinstance(self._body, Interruptible):
            self._body.interrupt()
        self._jobs.cancel()

    def ready(self) -> bool:
        """Whether an instance would have something to do, and room for its output."""
        if self.busy or self.state != "running":
            return False
        if not self._more and (not any(one.ready for one in self.inlets) or self._puts_off()):
            return False
        return self.outlet is None or self.outlet.room()

    def _puts_off(self) -> bool:
        """Whether a standby should wait: under load the primary's acks soon make much of its work
        needless.
        """
        if self._patience is None:
            return False
        taken = tuple(inlet.taken for inlet in self.inlets)
        waiting = sum(inlet.waiting_bytes for inlet in self.inlets)
        return self._patience.waits(self._runtime.now(), taken, waiting)

    def arrived(self) -> None:
        """Takes note that something has come into an inlet."""
        self._owner.consider(self)

    def room_appeared(self) -> None:
        self._owner.consider(self)

    @property
    def writes(self) -> bool:
        """Whether it hands tuples to the world without Spark."""
        return self.spec.sink is not None and self.spec.sink.name != "spark"

    @property
    def sub_deadline_us(self) -> int | None:
        """The sub-deadline. It is None also while the task stands by, or has ended: then nobody
        waits for its results.
        """
        waited_for = self.role == "primary" and self.state in ("waiting", "running")
        urgency = self.timeliness.urgency if waited_for else None
        return urgency.deadline_us if urgency else None

    def due(self, now_us: int) -> tuple[int, int]:
        """When an instance must end, and when the oldest tuple that it would take was born."""
        deadline, born = self.timeliness.due(self.inlets, now_us)
        return (deadline if self.role == "primary" else NO_DEADLINE), born

    def laxity_us(self) -> int | None:
        return self.timeliness.laxity_us()

    def run_instance(self, allowed_us: int | None = None) -> None:
        """Takes what waits, as much as can be done in the time `allowed`, processes it, and passes
        the results on. Never raises: a failure is a state. Called in a thread that may take its
        time.
        """
        started = time.perf_counter()
        taken = self.take(allowed_us)
        if taken is None:
            return
        begun = time.perf_counter()
        produced = self.process(taken)
        done = time.perf_counter()
        self.give(taken, produced)
        self.measures.add_handling(time.perf_counter() - started - (done - begun))

    def take(self, allowed_us: int | None = None) -> list[Taken] | None:
        """The input of an instance that begins; None if there is nothing to do after all."""
        with self._runtime:
            if not self.ready():
                return None
            self.busy = True
            self._instance += 1
            self._ran_s = 0.0
            self._taken_from = self.inlets
            if self._long_us is not None:
                allowed_us = min(self._long_us, allowed_us or self._long_us)
            most = self.timeliness.most_rows(self._batch, allowed_us)
            taken = [self._take(inlet, most) for inlet in self.inlets]
            pairs = zip(self.inlets, taken, strict=True)
            self._on = [
                (inlet.stream, one.batches[0].first, one.last)
                for inlet, one in pairs
                if one.batches
            ]
            return taken

    def _take(self, inlet: LiveInlet[Any], most: int) -> Taken:
        if not self._patience:  # who waits before each instance takes all that has come
            most = min(most, inlet.portion)
        batches = [] if self._more else inlet.take(most)
        return Taken(list(batches), inlet.taken, inlet.watermark)

    def process(self, taken: Sequence[Taken]) -> Produced | AnabranchError:
        started, goes_on = time.perf_counter(), self._more
        rows = sum(one.rows for one in taken)
        if self._kept:
            self._kept.taking(taken)
        try:
            if rows:
                self._jobs.begin(f"{self.spec.name}: {rows} tuples")
            produced = self._body.step(taken)
            if self._kept:
                self._kept.measure()
            self._look_at_state(taken, more=produced.more)
            if rows or goes_on or produced.rows:
                ages = produced.ages_s(time.time_ns() // 1000)
                elapsed = time.perf_counter() - started
                self.measures.add(time.monotonic(), rows, produced.rows, elapsed, ages)
                if self.timeliness.judges and produced.rows:
                    self.timeliness.judge(produced.born(), time.time_ns() // 1000)
            return produced
        except Exception as error:
            return self._overran or explain(error, self.spec)

    def give(self, taken: Sequence[Taken], produced: Produced | AnabranchError) -> None:
        """Ends an instance: gives its results."""
        pieces: Sequence[Any] = ()
        if self.outlet and not isinstance(produced, AnabranchError):
            pieces = produced.pieces(WIRE_ROWS)
            self._owner.giving(self, pieces, produced)
        with self._runtime:
            try:
                if isinstance(produced, AnabranchError):
                    self.fail(produced)
                    return
                self._emit(produced, pieces)
                self._more = produced.more
                self._keep_state(taken, produced.instant)
                if not self._more:
                    self.processed = tuple(one.last for one in taken)
                if produced.watermark == END_WATERMARK:
                    self._finish()
            except Exception as error:
                self.fail(explain(error, self.spec))
            finally:
                for inlet in self._taken_from:
                    inlet.done()
                self._rest()

    # -- snapshots -------------------------------------------------------------------------------

    def _look_at_state(self, taken: Sequence[Taken], *, more: bool) -> None:
        """A standby has its state from the inputs; as long as there is one, upstream keeps these,
        and nobody restarts with a state that only this site has."""
        if not self._kept or more or self.role != "primary" or self._owner.stood_by_for(self):
            return
        newest = self._log.newest.inputs
        rows = sum(max(0, one.last - first) for one, first in zip(taken, newest, strict=True))
        self._kept.look(rows, self.measures.cost().per_tuple)

    def _keep_state(self, taken: Sequence[Taken], instant: int) -> None:
        if not self._kept or not self.outlet:
            return
        log = self._log

        def kept(point: RestartPoint) -> None:
            current = log is self._log and self.state == "running" and self.role == "primary"
            if current and log.add_kept(point):
                self._owner.released(self)

        point = RestartPoint(tuple(one.last for one in taken), self.outlet.last, instant)
        self._kept.keep(point, self.epoch, lambda: self._log.snapshots, kept)

    def _finish(self) -> None:
        """Ends the output: nothing can come out any more."""
        if self.state == "running":
            self.state = "done"
        self.discard_inputs()
        self._leave_early()

    def discard_inputs(self) -> None:
        """Drops the inputs after its end: tuples that still come must not wait for it, and delay
        others.
        """
        for inlet in self.inlets:
            inlet.take(FOREVER)
            inlet.done()

    def _leave_early(self) -> None:
        """Ends before its inputs: those that have not ended need not wait for us, once our results
        from them are safe.
        """
        if self.state == "done" and not self._left and self._log.current.finished:
            self._left = True
            self._owner.ended_early(self)

    def _emit(self, produced: Produced, pieces: Sequence[Any]) -> None:
        """Appends first, then records where a restart would begin: never the other way round."""
        if self.outlet:
            position = self.outlet.append(pieces, produced.watermark)
        else:
            position = max(produced.needless)
        needless = produced.needless
        if produced.watermark == END_WATERMARK:  # whatever windows are still open
            needless = tuple(one.taken if one.drained else FOREVER for one in self._taken_from)
        if produced.restartable:
            self._log.add(RestartPoint(needless, position, produced.instant))
        if not self.outlet or not self.outlet.wanted:
            self.acknowledge(position)

    def acknowledge(self, position: int) -> None:
        """Takes note that nobody downstream needs anything up to `position` any more (Level-1), and
        passes it on.
        """
        if self._log.acknowledge(position):
            self._owner.released(self)
            self._leave_early()

    def learn(self, point: RestartPoint) -> None:
        """Learns that another run of this task got acks for `point`."""
        self._log.learn(point)
        if self.outlet:
            self.outlet.learn(point.readers)

    def restart_point(self) -> RestartPoint:
        """Its restart point, with those of all that read its output."""
        if self.outlet is None:
            return self._log.current
        readers = beyond(self.spec.name, self.outlet.readers())
        return self._log.current.before(readers) if readers else self._log.current

    def fail(self, error: AnabranchError) -> None:
        with self._runtime:
            if self.state not in ("failed", "stopped"):  # a stop interrupts, which is no failure
                self.state, self.error = "failed", error
                self._owner.failed(self)

    async def close(self) -> None:
        """Stops for good; what was handed to a sink stays whole."""
        self.stop()
        for inlet in self.inlets:
            inlet.close()
        if self._kept:
            await self._kept.close()
        await self._runtime.blocking(self._body.close)

    def report(self) -> TaskReport:
        spec = self.spec
        return TaskReport(
            name=spec.name,
            query=spec.query,
            site=spec.site,
            inputs=tuple(one.stream for one in spec.inputs),
            output=spec.output,
            state=self.state,
            role=self.role,
            epoch=self.epoch,
            error=self.error.report() if self.error else None,
            cut_off=self.cut_off,
            sink=spec.sink.name if spec.sink else None,
            queue=sum(inlet.waiting for inlet in self.inlets),
            position=self.outlet.last if self.outlet else self.inlets[0].taken,
            watermark=self.outlet.watermark if self.outlet else None,
            plans=self._plans(),
            pocket=self._body.report() if isinstance(self._body, Reporting) else None,
            **self.measures.report(time.monotonic()),
            **self.timeliness.report(),
            away=None,
            problem="",
            breaks=0,
            born=spec.born,
            snapshot=self._kept.report() if self._kept else None,
        )


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
