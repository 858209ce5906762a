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
from anabranch.link.reports import TaskReport
from anabranch.plan.tasks import TaskSpec
from anabranch.site.tasks import body
from anabranch.site.tasks.task import Task
from anabranch.snapshot.state import KeptPieces, Piece, State
from anabranch.standby.detector import Patience
from anabranch.stream.restart import START_WATERMARK, RestartPoint
from simulation.clock import Process, Violation
from simulation.ledger import Life
from simulation.operators import Operator, Produced, Taken
from simulation.outlets import CheckedOutlet
from simulation.reports import a_task
from simulation.rows import Row, Rows

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

    @property
    def state_bytes(self) -> int:
        return 0

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


Begins = Callable[[TaskSpec, RestartPoint], Life | None]


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
