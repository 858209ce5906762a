"""A standby is kept ready: the batch sizes of its inputs are as its query's limits want them,
and it runs often enough to stay warm.

A JVM compiles what it runs, so the first instances of a task take twice as long as later ones. A
standby at a large batch size would pay that when it has taken over. So it runs on made-up input now
and then, and knows from that what an instance costs here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import AnabranchError
from anabranch.link.messages import Wishes
from anabranch.link.meter import Flow, Releases
from anabranch.link.reports import TuningReport
from anabranch.plan.operators import Aggregate, Join
from anabranch.plan.tasks import TaskSpec
from anabranch.plan.windows import Range, RowPanes, Rows
from anabranch.runtime.base import Runtime
from anabranch.site.tasks.calibration import InSlot
from anabranch.site.tasks.task import Task
from anabranch.standby.choice import BatchChoice, StandbyLimits
from anabranch.standby.cost import Hold, Load, StandbyModel, assumed
from anabranch.standby.detector import Cadence
from anabranch.standby.tuner import Tuner

LOOK_S = 1.0


@dataclass(frozen=True)
class Costs:
    """The costs of the task, and of a call to its primary."""

    fixed_s: float
    per_tuple_s: float
    rtt_s: float


class Tuning:
    """Asks the producer of each input for its `measured` traffic, and makes it ship by the batch
    that suits: `set_batch(index, batch)`.
    """

    def __init__(
        self,
        runtime: Runtime,
        spec: TaskSpec,
        cluster: ClusterConfig,
        site: str,
        wishes: Wishes,
        beats: Cadence,
        measured: Callable[[int], Coroutine[Any, Any, Flow | None]],
        costs: Callable[[], Costs],
        set_batch: Callable[[int, int], Coroutine[Any, Any, None]],
    ) -> None:
        self._spec = spec
        self._cluster = cluster
        self._site = site
        self._beats = beats
        self._must_recover = wishes.recovery_s is not None
        self._measured = measured
        self._costs = costs
        self._set_batch = set_batch
        limits = StandbyLimits(wishes.recovery_s, wishes.overhead)
        self._tuners = [Tuner(limits, wishes.batch) for _ in spec.inputs]
        self._choices: dict[int, BatchChoice] = {}
        self._loads: dict[int, Load] = {}
        self._measured_acks: dict[int, bool] = {}
        """Input → whether releases were measured, or are assumed."""
        self._runtime = runtime
        self._coroutine = runtime.supervise(f"batches of {spec.name}", self._run)

    def close(self) -> None:
        self._coroutine.cancel()

    def report(self) -> tuple[TuningReport, ...]:
        """A report for each input that something is known of."""
        return tuple(self._tuned(index, choice) for index, choice in list(self._choices.items()))

    def _tuned(self, index: int, choice: BatchChoice) -> TuningReport:
        load = self._loads[index]
        model = StandbyModel(load)
        return TuningReport(
            stream=self._spec.inputs[index].stream,
            batch=choice.batch,
            why=self._why(index),
            measured=self._measured_acks.get(index, True),
            broken=choice.broken,
            overhead=choice.cost.overhead,
            recovery_s=choice.cost.recovery_s,
            worst_recovery_s=choice.cost.worst_recovery_s,
            process_s=model.worst_recovery(choice.batch, 1.0),
            machine_s=model.worst_recovery(choice.batch, load.silence),
            load=load,
        )

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(LOOK_S)
            for index in range(len(self._tuners)):
                try:
                    await self._tune(index)
                except AnabranchError:
                    continue  # its producer is away: there is nothing to tune

    async def _tune(self, index: int) -> None:
        flow = await self._measured(index)
        if flow is None:
            return
        load = self._load(index, flow, flow.releases or self._assumed(flow))
        self._measured_acks[index] = flow.releases is not None
        before = self._choices.get(index)
        choice = self._tuners[index].step(self._runtime.now(), load)
        self._loads[index], self._choices[index] = load, choice
        if before is None or before.batch != choice.batch:
            await self._set_batch(index, choice.batch)

    def _load(self, index: int, flow: Flow, releases: Releases) -> Load:
        costs = self._costs()
        window = min(_held(self._spec), releases.left)
        link = self._cluster.link(self._spec.inputs[index].site, self._site)
        return Load(
            rate=flow.rate,
            ack_interval_s=releases.ack_interval_s,
            lag_s=(releases.left - window) / flow.rate,
            lag_spread_s=releases.left_spread / flow.rate,
            window=window,
            tuple_bytes=flow.tuple_bytes,
            ratio=flow.ratio,
            bandwidth=link.bandwidth,
            rtt_s=costs.rtt_s + 2 * link.delay_us / 1e6,
            heartbeat_s=self._beats.every_s,
            # A limit holds for the longer of both. Without one, what is weighed is the usual death.
            missed=self._beats.missed + 1 if self._must_recover else 1.0,
            silence=self._beats.missed + 1,
            fixed_s=costs.fixed_s,
            per_tuple_s=costs.per_tuple_s,
            chunk=flow.chunk,
            acks=releases.acks,
        )

    def _assumed(self, flow: Flow) -> Releases:
        """The assumed releases, where nothing has been measured yet. The model invents the acks
        themselves: earlier assumed ones must not be remembered.
        """
        ack_interval_s = self._cluster.ack_interval_us / 1e6
        costs = self._costs()
        lag_s = ack_interval_s + costs.fixed_s + costs.rtt_s
        guess = assumed(hold_of(self._spec), flow.rate, flow.held, ack_interval_s, lag_s)
        return Releases(guess.interval_s, guess.left, left_spread=0.0, acks=())

    def _why(self, index: int) -> str:
        """Why this batch; with what is known of the load, if not all of it is measured."""
        why = self._choices[index].why
        if self._measured_acks.get(index, True):
            return why
        return f"{why}; assumed from {hold_of(self._spec)} until releases have been measured"


def hold_of(spec: TaskSpec) -> Hold:
    """What the windows of a task's first operator hold back."""
    for operator in spec.operators:
        if isinstance(operator, Aggregate):
            if isinstance(operator.panes, RowPanes):
                return Hold(width_rows=operator.panes.width, slide_rows=operator.panes.slide)
            return Hold(operator.panes.width_us / 1e6, operator.panes.slide_us / 1e6)
        if isinstance(operator, Join):
            times = [window.width_us for window in operator.windows if isinstance(window, Range)]
            rows = [window.count for window in operator.windows if isinstance(window, Rows)]
            return Hold(max(times, default=0) / 1e6, 0.0, max(rows, default=0))
    return Hold()


def _held(spec: TaskSpec) -> float:
    """The tuples that open windows hold back whatever the rate; the part of windows of time grows
    with the rate, as the lag does.
    """
    panes: Sequence[Any] = [one.panes for one in spec.operators if isinstance(one, Aggregate)]
    return max((one.width - one.slide / 2 for one in panes if isinstance(one, RowPanes)), default=0)


AT_ONCE = 32
"""Instances, dry ones included, that are run at half the speed of one processor."""
SOON = 200
"""Up to so many there is one every `SOON_S`, behind them one every `LATER_S`."""
LEAST_S, SOON_S, LATER_S = 0.05, 1.0, 5.0


class Warmth:
    """The warmth of a task that stands by, until it is closed. `in_slot` runs it when nothing else
    does; `consider` makes the executor look at the task after a run: something may have come
    meanwhile.
    """

    def __init__(
        self, runtime: Runtime, task: Task, in_slot: InSlot, consider: Callable[[], None]
    ) -> None:
        self._task = task
        self._runtime = runtime
        self._in_slot = in_slot
        self._consider = consider
        self._known = task.measures.samples
        self._closed = False
        self._warming = False
        self._coroutine = runtime.supervise(f"warming of {task.spec.name}", self._run)

    def close(self) -> None:
        """Closes it. A run that is under way ends first: otherwise nobody would see the end of an
        input that comes meanwhile.
        """
        self._closed = True
        if not self._warming:
            self._coroutine.cancel()

    async def _run(self) -> None:
        pause_s = LEAST_S
        while not self._closed:
            await self._runtime.sleep(pause_s)
            self._warming = True
            try:
                pause_s = await self._runtime.blocking(self._next)
            finally:
                self._warming = False
            self._consider()

    def _next(self) -> float:
        """Runs once, unless it has lately run by itself; returns how long to wait then."""
        samples = self._task.measures.samples
        if samples > self._known:
            self._known = samples
            return SOON_S
        try:
            took_s = self._in_slot(self._task.warm_up) or 0.0
        except Exception:  # nothing depends on it; its Spark may be going down
            return LATER_S
        self._known = samples + 1 if took_s else samples
        if took_s and self._known < AT_ONCE:
            return max(took_s, LEAST_S)
        return SOON_S if self._known < SOON else LATER_S
