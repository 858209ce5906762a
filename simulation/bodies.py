"""What sites run in a simulation: small operators, sources that can be read again, sinks on a disk
that survives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.connectors.sink import ANEW, Beginning, Continued, Sink
from anabranch.errors import AnabranchError, SinkError
from anabranch.link.inlet import Budget, LiveInlet
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import SourceReport, TaskReport
from anabranch.link.store import Shelves
from anabranch.link.wire import Unpack
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.places import Looked
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.runtime.base import Spawned
from anabranch.site.tasks import body
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.task import Owner, Task
from anabranch.snapshot.state import KeptPieces, Piece, State
from anabranch.standby.detector import Patience
from anabranch.stream.restart import START_WATERMARK, RestartPoint
from simulation.clock import Process, Violation
from simulation.ledger import Life
from simulation.operators import Operator, Produced, Taken
from simulation.plan import SourceSpec
from simulation.reports import a_source, a_task
from simulation.rows import Row, RowPayloads, Rows

ROOM_S = 0.05
SLOW, SLOW_WRITE = 0.15, 400
"""So many writes of sinks may take so many milliseconds: others take over meanwhile."""


@dataclass
class Written:
    """What a sink holds; `writer` opened it last."""

    rows: dict[int, Row] = field(default_factory=dict)
    writer: object = None


Sinks = dict[tuple[str, str], Written]
"""By sink task and run: what one creation of a query writes is no other's."""


class Places:
    """Where sinks write: what a site's are, and those that any site can write."""

    def __init__(self, shared: Mapping[str, Sinks]) -> None:
        self.own: Sinks = {}
        self._shared = shared

    def sink(self, task: str, run: str) -> Written:
        return self._shared.get(task, self.own).setdefault((task, run), Written())


@dataclass(frozen=True)
class Made:
    """As `site.tasks.body.Produced`."""

    given: list[Row]
    watermark: int
    needless: tuple[int, ...]
    instant: int
    restartable: bool = True
    more: bool = False

    @property
    def rows(self) -> int:
        return len(self.given)

    def pieces(self, max_rows: int) -> list[Rows]:
        return [Rows(tuple(self.given))] if self.given else []

    def ages_s(self, now_us: int) -> Any:
        return np.empty(0)


class OperatorBody:
    """An operator as the body of a task."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def open(self, instant: int = START_WATERMARK) -> None:
        self._operator.open(instant)

    def reopen(self, instant: int) -> None:
        self._operator.open(instant)

    def warm_up(self) -> bool:
        return False

    def snapshot(self) -> State:
        data = json.dumps(self._operator.state()).encode()
        return State({}, [Piece(data, lambda: data)])

    def restore(self, kept: KeptPieces) -> None:
        self._operator.restore(json.loads(kept.pieces[0]))

    def step(self, inputs: Sequence[body.Taken]) -> Any:
        made = self._operator.step([_numbered(one) for one in inputs])
        return Made(made.rows, made.watermark, made.needless, made.instant)

    def close(self) -> None:
        """Nothing is held."""


class FencedSink(Sink):
    """As a topic of Kafka's: whoever opens it can write, and the one before no more; what is
    written stays, twice if it was written twice."""

    def __init__(self, place: Written) -> None:
        self._place = place
        self._opened = False

    def open(self, begin: Beginning = ANEW) -> None:
        self._opened = True
        self._place.writer = self

    def written(self) -> int:
        return max(self._place.rows, default=0)

    def write(self, rows: Iterable[tuple[int, int, int]]) -> None:
        if self._opened and self._place.writer is not self:
            raise SinkError("another writes here now")
        for position, ts, value in rows:
            if position in self._place.rows:
                raise Violation(f"tuple {position} is written twice")
            self._place.rows[position] = ts, value

    def close(self) -> None:
        """What is written is whole."""


class SinkOperator:
    """Writes what is not yet there."""

    def __init__(self, place: Written) -> None:
        self._sink: Any = FencedSink(place)
        self._continued = Continued(self._sink)

    def open(self, instant: int) -> None:
        self._continued.open()

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        if taken.rows:
            known = self._continued.holds(taken.rows[0][0], len(taken.rows))
            self._sink.write(taken.rows[known:])
        return Produced([], taken.watermark, (taken.last,))

    def state(self) -> None:
        """It is in what was written."""

    def restore(self, state: Any) -> None:
        """It is in what was written."""


def _numbered(taken: body.Taken) -> Taken:
    rows = [
        (position, ts, value)
        for batch in taken.batches
        for position, (ts, value) in enumerate(batch.data.rows, batch.first)
    ]
    return Taken(rows, taken.last, taken.watermark)


Check = Callable[[str, Life | None, int, tuple[Row, ...]], None]
Begins = Callable[[TaskSpec, RestartPoint], Life | None]


class CheckedOutlet(LiveOutlet[Rows]):
    """Shows every tuple with its position."""

    def __init__(self, check: Check, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.life: Life | None = None
        self._check = check

    def append(self, batches: Any, watermark: int) -> int:
        first = self.last + 1
        parts = list(batches)
        last = super().append(parts, watermark)
        if parts:
            self._check(
                self.stream, self.life, first, tuple(row for one in parts for row in one.rows)
            )
        return last


class Source:
    """What is due, in whatever pieces time and room cut it into; then the end."""

    def __init__(self, runtime: Process, spec: SourceSpec, outlet: LiveOutlet[Rows]) -> None:
        self.outlet = outlet
        self.error: AnabranchError | None = None
        self._runtime = runtime
        self._spec = spec
        self._reading: Spawned[None] | None = None

    def resume(self, position: int) -> None:
        self.outlet.start_at(position)

    def start(self) -> None:
        if self._reading is None:
            self._reading = self._runtime.spawn(self._read(), f"read-{self._spec.name}")

    def close(self) -> None:
        if self._reading:
            self._reading.cancel()

    def report(self) -> SourceReport:
        state = "running" if self._reading else "waiting"
        return a_source(self._spec.name, state=state, site=self._spec.site)

    async def _read(self) -> None:
        spec, clock, count = self._spec, self._runtime.clock, len(self._spec.rows)
        while (last := self.outlet.last) < count:
            ready = last
            while ready < count and spec.due[ready] <= clock.now:
                ready += 1
            if ready == last:
                await self._runtime.sleep((spec.due[last] - clock.now) / 1000)
            elif await self.outlet.room_within(ROOM_S):
                rows = Rows(spec.rows[last:ready])
                self.outlet.append([rows], spec.watermarks[ready - 1])
        self.outlet.end()


class SimTask(Task):
    """Nothing that a simulation does may make a task fail, but for a sink that another writes, and
    errors of the machine: then another has to run it in the end."""

    def __init__(self, begins: Begins, *args: Any) -> None:
        super().__init__(*args)
        self._begins = begins
        self._process: Process = args[0]

    async def start(
        self, point: RestartPoint, epoch: int = 0, patience: Patience | None = None
    ) -> None:
        life = self._begins(self.spec, point)
        if isinstance(self.outlet, CheckedOutlet):
            self.outlet.life = life
        await super().start(point, epoch, patience)

    def report(self) -> TaskReport:
        """What the coordinator looks at: the time that Python takes says nothing here."""
        spec = self.spec
        return a_task(
            spec.name,
            spec.site,
            query=spec.query,
            output=spec.output,
            role=self.role,
            epoch=self.epoch,
            state=self.state,
            cut_off=self.cut_off,
            born=spec.born,
        )

    def fail(self, error: AnabranchError) -> None:
        if isinstance(error, SinkError) or self._process.troubled:
            super().fail(error)
            return
        kind = type(error).__name__
        raise Violation(f"{self.spec.name} ({self.role}): {kind}: {error}")


class SimBuilder:
    """Of one process. `operators` makes what a creation of a query does; `begins` hears of each
    task that begins."""

    def __init__(
        self,
        process: Process,
        places: Places,
        sources: Mapping[str, SourceSpec],
        operators: Callable[[str], Operator],
        check: Check,
        begins: Begins,
        queue_bytes: int,
        heartbeat_s: float,
        shelves: Shelves,
        states: States,
    ) -> None:
        self._states = states
        self._shelves = shelves
        self._begins = begins
        self._process = process
        self._places = places
        self._sources = sources
        self._operators = operators
        self._check = check
        self._queue_bytes = queue_bytes
        self._heartbeat_s = heartbeat_s
        self._budget = Budget(process, queue_bytes)

    def source(self, definition: StreamDef | TableDef, *, resume: bool) -> Source:
        spec = self._sources[definition.name]
        return Source(self._process, spec, self._outlet(definition.name))

    def check_source(self, definition: StreamDef | TableDef) -> Looked:
        """It is there."""
        return Looked(())

    def check_sink(self, spec: TaskSpec) -> Looked:
        """It can be written."""
        return Looked(())

    def task(
        self, spec: TaskSpec, outlets: Mapping[str, Any], owner: Owner, *, resume: bool
    ) -> Task:
        if spec.output is None:
            operator: Operator = SinkOperator(self._places.sink(spec.name, spec.run))
            outlet = None
        else:
            operator, outlet = self._operators(spec.base), self._outlet(spec.output)
        runs, inlets = OperatorBody(operator), self.inlets(spec)
        states = self._states if outlet else None
        return SimTask(
            self._begins,
            self._process,
            owner,
            spec,
            runs,
            inlets,
            outlet,
            NoJobs(),
            tuple,
            1_000_000,
            states,
        )

    def inlets(self, spec: TaskSpec) -> list[LiveInlet[Rows]]:
        return [
            LiveInlet(one.stream, limit=self._queue_bytes, budget=self._budget)
            for one in spec.inputs
        ]

    def unpacker(self, source: TaskInput, codec: str | None) -> Unpack:
        return lambda batch: batch

    def pocket_executor(self, name: str) -> Any:
        raise NotImplementedError("no pockets here")

    def _outlet(self, stream: str) -> LiveOutlet[Rows]:
        return CheckedOutlet(
            self._check,
            self._process,
            stream,
            RowPayloads(),
            limit=max(1, self._queue_bytes // 4),
            heartbeat_s=self._heartbeat_s,
            shelves=self._shelves,
        )


class NoJobs:
    """There is no Spark."""

    def begin(self, description: str) -> None: ...

    def cancel(self) -> None: ...


class SimExecutor:
    """As `site.tasks.executor`, with as many slots as there are tasks; `patience` is how long a
    lazy standby's instance waits at most. `progress` hears of every instance."""

    def __init__(
        self,
        process: Process,
        rng: Any,
        work: int,
        patience: int,
        progress: Callable[[Task], None],
    ) -> None:
        self._process = process
        self._rng = rng
        self._work = work
        self._patience = patience
        self._progress = progress
        self._seen: set[Task] = set()
        self._lazy: dict[Task, bool] = {}

    def consider(self, task: Task) -> None:
        if task not in self._seen and task.ready():
            self._seen.add(task)
            lazy = self._lazy.setdefault(task, self._rng.random() < 0.5)
            most = self._patience if lazy and task.role == "standby" else self._work
            self._process.later(self._rng.randint(0, most) / 1000, self._begin, task)

    def run(self, do: Callable[[], float], *, patience_s: float) -> float | None:
        return do()

    def close(self) -> None:
        """It dies with its process."""

    def _begin(self, task: Task) -> None:
        taken = task.take()
        if taken is None:
            self._seen.discard(task)
        else:
            slow = task.outlet is None and self._rng.random() < SLOW
            most = SLOW_WRITE if slow else self._work
            self._process.later(self._rng.randint(0, most) / 1000, self._end, task, taken)

    def _end(self, task: Task, taken: Any) -> None:
        task.give(taken, task.process(taken))
        self._seen.discard(task)
        self._progress(task)
        self.consider(task)
