"""The messages between sites, and between sites and the coordinator: a class each, with the type of
its answer. Users' requests to a coordinator are in `coordinator.requests`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import ErrorReport
from anabranch.link.message import Fetch, Message, Order, Origin
from anabranch.link.meter import Flow
from anabranch.link.reports import PlanReport, SiteReport
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.definitions import Wanted
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.keep import Past
from anabranch.plan.operators import Column, Operator
from anabranch.plan.places import Place as FilePlace
from anabranch.plan.service_levels import Urgency
from anabranch.plan.spec import Call, Submission
from anabranch.plan.stage import Stage
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint, SnapshotName
from anabranch.stream.routes import Route

# -- following streams (DoGet) -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Follow(Message[None]):
    """Asks for `stream` after `after`, for the consumer's task of `epoch`, of the query that was
    created with the number `born`.
    """

    stream: str
    consumer: str
    after: int
    epoch: int = 0
    born: int = 0


@dataclass(frozen=True, slots=True)
class Ship(Message[None]):
    """Asks for the stream as the consumer's standby of `epoch` gets it, in batches of this many
    tuples; packed if there is a codec.
    """

    stream: str
    consumer: str
    after: int
    epoch: int
    batch: int
    codec: str | None = None


# -- acks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ack:
    """An ack of both levels; `received` is missing when only the restart point has moved. `epoch`
    is that of the producer who sent, `own` that of the task that received as input `index`.
    """

    stream: str
    consumer: str
    epoch: int
    received: int | None
    index: int
    point: RestartPoint
    own: int = 0
    born: int = 0

    @classmethod
    def of_reader(cls, stream: str, consumer: str, last: int, epoch: int = 0) -> Ack:
        """The ack of a program that has got all up to `last`, and would restart there."""
        return cls(stream, consumer, epoch, last, 0, RestartPoint((last,), last))


@dataclass(frozen=True, slots=True)
class Acks(Message[list[tuple[str, int]]]):
    """Brings acks. The answer lists those, as (consumer, epoch), whose consumers have been
    replaced.
    """

    acks: tuple[Ack, ...]


# -- states --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateFound:
    """The notes of a snapshot, and the bytes of each of its pieces."""

    notes: dict[str, Any]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FindState(Message[StateFound | None]):
    """What a site has kept of the state of a task, which may run there no more."""

    task: str
    name: SnapshotName


@dataclass(frozen=True, slots=True)
class ReadState(Message[str | None]):
    """Asks for some bytes of one of its pieces, in base64; None if it is not there any more."""

    task: str
    name: SnapshotName
    piece: int
    offset: int


# -- deploying -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Addresses(Message[None], action="peers"):
    """Tells where sites are."""

    peers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """The files that are used, what is wrong with them, and what the user should be told of
    them.
    """

    places: tuple[FilePlace, ...]
    problems: tuple[ErrorReport, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check(Message[Checked]):
    """Asks what is wrong with these sources and sinks, and which files they use; nothing
    changes.
    """

    sources: tuple[StreamDef | TableDef, ...]
    tasks: tuple[TaskSpec, ...]


@dataclass(frozen=True, slots=True)
class Prepare(Order[None]):
    """Builds all or nothing. With `resume`, they ran here before, and what they left is used
    again.
    """

    sources: tuple[StreamDef | TableDef, ...]
    tasks: tuple[TaskSpec, ...]
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Attach(Message[int]):
    """Keeps tuples for a consumer from now on, or from after `after`; the answer is the position
    after which it begins. A new consumer that asks for the `past` begins there.
    """

    stream: str
    consumer: str
    after: int | None = None
    point: RestartPoint | None = None
    epoch: int = 0
    lease: bool = False
    born: int = 0
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class HoldState(Message[None]):
    """Let go of nothing that is kept on the disk, until `ReleaseState`, or for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReleaseState(Message[bool]):
    """Answered with whether it has been held until now."""


@dataclass(frozen=True, slots=True)
class StateFiles(Message[tuple[str, ...]]):
    """What the state folder holds, in the order in which it is to be read."""


@dataclass(frozen=True, slots=True)
class ReadFile(Fetch[None]):
    """A piece of such a file: one binary value, empty at the end."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Detach(Message[None]):
    """Keeps nothing for it any more; if an epoch or a creation is given, only if no later one has
    come.
    """

    stream: str
    consumer: str
    epoch: int | None = None
    born: int = 0


@dataclass(frozen=True, slots=True)
class SetPositions(Order[None], action="place"):
    """Sets, before the start, the positions after which outputs and sources go on."""

    outputs: dict[str, int]
    sources: dict[str, int]


@dataclass(frozen=True, slots=True)
class Begin:
    """The point where a task begins, and its epoch."""

    point: RestartPoint
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Start(Order[None]):
    tasks: dict[str, Begin]


@dataclass(frozen=True, slots=True)
class StartSources(Order[None]):
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Urgencies(Order[None]):
    """Task → its sub-deadlines from now on; None means that it has none any more."""

    tasks: dict[str, Urgency | None]


@dataclass(frozen=True, slots=True)
class DropTasks(Order[None], action="drop"):
    """Drops things. `standbys` are dropped only if they still stand by. `resume` means that they
    are going to be prepared again, and go on from their points. `born` maps a name to the creation
    that is meant, and no later one of that name; without an entry any creation is meant.
    """

    tasks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    standbys: tuple[str, ...] = ()
    resume: bool = False
    born: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoOnWithout(Order[None]):
    """A person gives up the results of these positions, which the sink of `task` has lost."""

    task: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Points(Message[dict[str, RestartPoint]]):
    """Task → where it would restart, for all tasks that a site knows of."""


# -- standing by ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrimaryAnswer:
    """Whether the task `runs` as its primary, and what an instance costs there, for a standby that
    has run few.
    """

    runs: bool
    fixed_s: float = 0.0
    per_tuple_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AskPrimary(Message[PrimaryAnswer], action="beat"):
    task: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a query asks of its standby: a batch size to keep, and limits to keep or to check."""

    batch: int | None = None
    recovery_s: float | None = None
    overhead: float | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a consumer still needs of a stream, where it would restart, and its epoch."""

    after: int
    point: RestartPoint | None = None
    epoch: int = 0
    born: int = 0


@dataclass(frozen=True, slots=True)
class StandBy(Order[None]):
    """Runs `task` from `point` on as the standby of `primary`, to take over in `epoch`. `sink` is
    the task that goes with it, if one does.
    """

    task: TaskSpec
    point: RestartPoint
    primary: str
    epoch: int
    batch: int
    codec: str | None
    wishes: Wishes
    consumers: dict[str, Needs]
    sink: TaskSpec | None = None


@dataclass(frozen=True, slots=True)
class TakeOver(Order[None]):
    """Takes over now, though the primary may be well."""

    task: str


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a producer has released on a task's word, that task's restart point, and how far it was
    sent.
    """

    released: int
    restart: RestartPoint | None
    sent: int = 0


@dataclass(frozen=True, slots=True)
class ClaimInput(Message[ConsumerState], action="claim"):
    """Claims the input: the task that consumes as `consumer` is now the one of `epoch`."""

    stream: str
    consumer: str
    epoch: int


@dataclass(frozen=True, slots=True)
class AskConsumer(Message[ConsumerState], action="consumer"):
    stream: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Announce(Message[None], action="routes"):
    """Announces who produces streams now, and who stands by."""

    routes: dict[str, Route]


@dataclass(frozen=True, slots=True)
class ShipBy(Message[None], action="batch"):
    """Asks to ship in batches of another size from now on."""

    stream: str
    consumer: str
    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class AskTraffic(Message[Flow | None], action="measured"):
    """The traffic that a standby's cost depends on; None while nothing comes."""

    stream: str
    consumer: str


# -- trying out ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emulate(Message[None]):
    """Sets the delays of links from now on, in seconds: sender → receiver → delay."""

    delays_s: Mapping[str, Mapping[str, float]]


# -- asking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pong:
    """The process that answers; it may be several sites."""

    pid: int


@dataclass(frozen=True, slots=True)
class Ping(Message[Pong]):
    pass


@dataclass(frozen=True, slots=True)
class Status(Message[SiteReport]):
    pass


@dataclass(frozen=True, slots=True)
class Analyse(Message[tuple[TypeAnswer, ...]]):
    """The types of expressions over these columns."""

    columns: tuple[Column, ...]
    expressions: tuple[str, ...]
    aggregate: bool = False


@dataclass(frozen=True, slots=True)
class Plans(Message[tuple[PlanReport, ...]]):
    """How the expressions of a task would be evaluated; nothing changes."""

    task: TaskSpec


@dataclass(frozen=True, slots=True)
class Trial:
    """What an instance was found to cost."""

    fixed_us: float
    per_tuple_us: float


@dataclass(frozen=True, slots=True)
class Calibrate(Message[Trial | None]):
    """What an instance of a task would cost here, tried out on made-up tuples; None if that cannot
    be tried. Nothing changes."""

    task: TaskSpec


@dataclass(frozen=True, slots=True)
class ModelArrays:
    """The arrays of a model, as text, and the number of windows that it was learnt from."""

    arrays: str
    shrinkage: float
    windows: int


@dataclass(frozen=True, slots=True)
class LearnModel(Message[ModelArrays]):
    """Asks for the mean and covariance of window results, from all in the table of a `sink` between
    the ends `oldest` and `newest`: of streams like `streams`, a window every `slide` µs. `keys` are
    the columns of the model.
    """

    sink: Call
    streams: str
    key_columns: tuple[str, ...]
    value: str
    keys: list[list[Any]]
    oldest: int
    newest: int
    slide: int

    @property
    def table(self) -> str:
        return str(self.sink.options["table"])


@dataclass(frozen=True, slots=True)
class CheckTypes(Message[tuple[TypeAnswer, ...]]):
    """Asks for the types of columns in Spark's spelling."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class DescribePocket(Message[Submission]):
    """Asks what the class `module:Class` says, whose file lies in `base`, under a name."""

    name: str
    class_: str
    base: str


@dataclass(frozen=True, slots=True)
class StageSize(Message[int]):
    """Asks about how many tuples there are in the source of a stage, which need not run."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class StateRows:
    """A table as text, and the offsets of its stage that it belongs to."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    offsets: dict[str, int]


@dataclass(frozen=True, slots=True)
class StateQuery(Message[StateRows]):
    """Asks for the result of Spark SQL over the windows that a stage has so far, as `operators`
    would give them out; `before` and `after` are the text around the name of that table.
    """

    stream: str
    operators: tuple[Operator, ...]
    before: str
    after: str


# -- streams that programs fill ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schema(Message[str]):
    stream: str


@dataclass(frozen=True, slots=True)
class Push(Message[bool]):
    """Brings rows as `site.sources.open_stream` encodes them. A `writer` that had no answer sends
    the same `number` again, and its rows are there once.
    """

    stream: str
    rows: str
    writer: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class End(Message[None]):
    stream: str


# -- to the coordinator --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    """The cluster as the coordinator knows it, and the number of this incarnation of the site."""

    cluster: ClusterConfig
    life: int = 0


@dataclass(frozen=True, slots=True)
class JoinCluster(Message[Joined], action="join"):
    """Says that a site is about to start."""

    site: str
    pid: int
    protocol: int = 0
    version: str = "of an earlier version"


@dataclass(frozen=True, slots=True)
class News:
    """Where all sites are, and who produces what. If `wanted` is set, the site stops whatever runs
    there and is not in it.
    """

    addresses: dict[str, str]
    routes: dict[str, Route]
    wanted: Wanted | None = None
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True, slots=True)
class SendReport(Message[News], action="heartbeat"):
    """Says what runs at a site."""

    report: SiteReport
