"""Keeps the batch sizes of a standby's inputs as its query's limits want them."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.config.cluster import Cluster
from anabranch.errors import AnabranchError
from anabranch.link.messages import Wishes
from anabranch.plan.operators import Aggregate
from anabranch.plan.tasks import TaskSpec
from anabranch.plan.windows import RowPanes
from anabranch.runtime.base import Runtime
from anabranch.standby.choice import Choice, Limits
from anabranch.standby.cost import Load
from anabranch.standby.tuner import Tuner

LOOK_S = 1.0


@dataclass(frozen=True)
class Costs:
    """Of the task, and of a call to its primary."""

    fixed_s: float
    per_tuple_s: float
    rtt_s: float


Measured = dict[str, Any]


class Tuning:
    """Asks the producer of each input for its `measured` traffic, and has it ship by the batch that
    suits: `set_batch(index, batch)`."""

    def __init__(
        self,
        runtime: Runtime,
        spec: TaskSpec,
        cluster: Cluster,
        site: str,
        wishes: Wishes,
        measured: Callable[[int], Coroutine[Any, Any, Measured]],
        costs: Callable[[], Costs],
        set_batch: Callable[[int, int], Coroutine[Any, Any, None]],
    ) -> None:
        self._spec = spec
        self._cluster = cluster
        self._site = site
        self._measured = measured
        self._costs = costs
        self._set_batch = set_batch
        limits = Limits(wishes.recovery_s, wishes.overhead)
        self._tuners = [Tuner(limits, wishes.batch) for _ in spec.inputs]
        self._choices: dict[int, Choice] = {}
        self._loads: dict[int, Load] = {}
        self._runtime = runtime
        self._coroutine = runtime.supervise(f"batches of {spec.name}", self._run)

    def close(self) -> None:
        self._coroutine.cancel()

    def report(self) -> list[dict[str, Any]]:
        """Per input that something is known of."""
        return [
            {"stream": self._spec.inputs[index].stream, "batch": choice.batch, "why": choice.why,
             "broken": list(choice.broken), **asdict(choice.cost), "load": _finite(load)}
            for index, choice in list(self._choices.items())
            if (load := self._loads[index])
        ]  # fmt: skip

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(LOOK_S)
            for index in range(len(self._tuners)):
                try:
                    await self._tune(index)
                except AnabranchError:
                    continue  # its producer is away: there is nothing to tune

    async def _tune(self, index: int) -> None:
        found = await self._measured(index)
        load = self._load(index, found) if found else None
        if load is None:
            return
        before = self._choices.get(index)
        choice = self._tuners[index].step(self._runtime.now(), load)
        self._loads[index], self._choices[index] = load, choice
        if before is None or before.batch != choice.batch:
            await self._set_batch(index, choice.batch)

    def _load(self, index: int, found: Measured) -> Load:
        costs, rate = self._costs(), found["rate"]
        window = min(_held(self._spec), found["left"])
        link = self._cluster.link(self._spec.inputs[index].site, self._site)
        return Load(
            rate=rate,
            ack_interval_s=found["ack_interval_s"],
            lag_s=(found["left"] - window) / rate,
            lag_spread_s=found["left_spread"] / rate,
            window=window,
            tuple_bytes=found["tuple_bytes"],
            ratio=found.get("ratio", 1.0),
            bandwidth=link.bandwidth or math.inf,
            rtt_s=costs.rtt_s + 2 * link.delay_us / 1e6,
            heartbeat_s=self._cluster.heartbeat_interval_us / 1e6,
            fixed_s=costs.fixed_s,
            per_tuple_s=costs.per_tuple_s,
            chunk=found["chunk"],
            acks=tuple((arrived, left) for arrived, left in found["acks"]),
        )


def _finite(load: Load) -> dict[str, Any]:
    """As JSON can say it."""
    return {name: None if value == math.inf else value for name, value in asdict(load).items()}


def _held(spec: TaskSpec) -> float:
    """Tuples that open windows hold back whatever the rate; what windows of time hold grows with
    it, as the lag does."""
    panes: Sequence[Any] = [one.panes for one in spec.operators if isinstance(one, Aggregate)]
    return max((one.width - one.slide / 2 for one in panes if isinstance(one, RowPanes)), default=0)
