"""All that is asked of a site or the coordinator: one class a message, by the name of its action.

A message travels as JSON and is checked where it arrives; inside a process it is handed over as it
is. `answer` is what comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from anabranch.errors import ProtocolError
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.operators import Column, Operator
from anabranch.plan.stage import Stage
from anabranch.plan.tasks import TaskSpec
from anabranch.plan.timeliness import Urgency
from anabranch.plan.wanted import Wanted
from anabranch.stream.restart import RestartPoint
from anabranch.stream.routes import Route

PROTOCOL = 1
"""Rises with every change of the messages that an older program would misunderstand. What is new
and may be left out is ignored by those who do not know it."""


class Message:
    """Subclasses are frozen dataclasses with an `action`."""

    __slots__ = ()
    action: ClassVar[str]
    answer: ClassVar[Any] = None


@dataclass(frozen=True, slots=True)
class Origin:
    """The catalog that somebody belongs to: its identity, and the state folder that it is in."""

    id: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Message):
    """What a coordinator has a site do. One that runs something for another catalog refuses."""

    origin: Origin = field(default_factory=Origin)


# -- following streams (DoGet) -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Follow(Message):
    """`stream` behind `after`, for the consumer's task of `epoch`, of the query that was `born`
    then."""

    action: ClassVar[str] = "follow"
    stream: str
    consumer: str
    after: int
    epoch: int = 0
    born: int = 0


@dataclass(frozen=True, slots=True)
class Ship(Message):
    """What the consumer's standby of `epoch` gets of `stream`, in batches of so many tuples; packed
    if there is a codec."""

    action: ClassVar[str] = "ship"
    stream: str
    consumer: str
    after: int
    epoch: int
    batch: int
    codec: str | None = None


# -- acks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ack:
    """Both levels; `received` is missing when only the restart point has moved. `epoch` is that of
    the producer who sent, `own` that of the task that received as input `index`."""

    stream: str
    consumer: str
    epoch: int
    received: int | None
    index: int
    point: RestartPoint
    own: int = 0
    born: int = 0


@dataclass(frozen=True, slots=True)
class Acks(Message):
    """Answered with those among them, (consumer, epoch), that have been replaced."""

    action: ClassVar[str] = "acks"
    answer: ClassVar[Any] = list[tuple[str, int]]
    acks: tuple[Ack, ...]


# -- deploying -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peers(Message):
    """Where sites are."""

    action: ClassVar[str] = "peers"
    peers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Check(Message):
    """What is wrong with these sources and sinks, and which files they mean; nothing changes."""

    action: ClassVar[str] = "check"
    answer: ClassVar[Any] = dict[str, Any]
    sources: tuple[StreamDef | TableDef, ...]
    tasks: tuple[TaskSpec, ...]


@dataclass(frozen=True, slots=True)
class Prepare(Order):
    """Build all or nothing. `resume`: they ran here before, and what they left is used again."""

    action: ClassVar[str] = "prepare"
    sources: tuple[StreamDef | TableDef, ...]
    tasks: tuple[TaskSpec, ...]
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Attach(Message):
    """Keep tuples for a consumer from now on, or from behind `after`; answered with the position it
    begins behind."""

    action: ClassVar[str] = "attach"
    answer: ClassVar[Any] = int
    stream: str
    consumer: str
    after: int | None = None
    point: RestartPoint | None = None
    epoch: int = 0
    lease: bool = False
    born: int = 0


@dataclass(frozen=True, slots=True)
class Detach(Message):
    """Keep nothing for it any more; if an epoch or a creation is given, only if none of a later one
    has come."""

    action: ClassVar[str] = "detach"
    stream: str
    consumer: str
    epoch: int | None = None
    born: int = 0


@dataclass(frozen=True, slots=True)
class Place(Order):
    """Before the start: the positions behind which outputs and sources go on."""

    action: ClassVar[str] = "place"
    outputs: dict[str, int]
    sources: dict[str, int]


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a task begins, and in which epoch."""

    point: RestartPoint
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Start(Order):
    action: ClassVar[str] = "start"
    tasks: dict[str, Begin]


@dataclass(frozen=True, slots=True)
class StartSources(Order):
    action: ClassVar[str] = "start_sources"
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Urgencies(Order):
    """Task → its sub-deadlines from now on; None: it has none any more."""

    action: ClassVar[str] = "urgencies"
    tasks: dict[str, Urgency | None]


@dataclass(frozen=True, slots=True)
class Drop(Order):
    """`standbys`: these tasks only if they still stand by. `resume`: they are going to be prepared
    again, and go on from their points. `born`: name → the creation that is meant, and no later one
    of that name; a name that is not in it is meant whatever it is."""

    action: ClassVar[str] = "drop"
    tasks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    standbys: tuple[str, ...] = ()
    resume: bool = False
    born: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Points(Message):
    """Task → where it would restart, of all that a site knows of."""

    action: ClassVar[str] = "points"
    answer: ClassVar[Any] = dict[str, RestartPoint]


# -- standing by ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alive:
    """`runs`: as its primary. What an instance costs there, for a standby that has run few."""

    runs: bool
    fixed_s: float = 0.0
    per_tuple_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Beat(Message):
    action: ClassVar[str] = "beat"
    answer: ClassVar[Any] = Alive
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
class StandBy(Order):
    """Run `task` from `point` on as the standby of `primary`, to take over in `epoch`. `sink` is
    the task that goes with it, if one does."""

    action: ClassVar[str] = "stand_by"
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
class TakeOver(Order):
    """Now, though the primary may be well."""

    action: ClassVar[str] = "take_over"
    task: str


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a producer has let go of on a task's word, that task's restart point, and how far it was
    sent."""

    released: int
    restart: RestartPoint | None
    sent: int = 0


@dataclass(frozen=True, slots=True)
class Claim(Message):
    """The task that consumes as `consumer` is now the one of `epoch`."""

    action: ClassVar[str] = "claim"
    answer: ClassVar[Any] = ConsumerState
    stream: str
    consumer: str
    epoch: int


@dataclass(frozen=True, slots=True)
class AskConsumer(Message):
    action: ClassVar[str] = "consumer"
    answer: ClassVar[Any] = ConsumerState
    stream: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Announce(Message):
    """Who produces streams now, and who stands by."""

    action: ClassVar[str] = "routes"
    routes: dict[str, Route]


@dataclass(frozen=True, slots=True)
class ShipBy(Message):
    """Ship in batches of another size from now on."""

    action: ClassVar[str] = "batch"
    stream: str
    consumer: str
    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class Measured(Message):
    """The traffic that a standby's cost depends on."""

    action: ClassVar[str] = "measured"
    answer: ClassVar[Any] = dict[str, Any]
    stream: str
    consumer: str


# -- trying out ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Emulate(Message):
    """Sender → receiver → the delay of that link from now on, in seconds."""

    action: ClassVar[str] = "emulate"
    delays_s: dict[str, dict[str, float]]


# -- asking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping(Message):
    action: ClassVar[str] = "ping"
    answer: ClassVar[Any] = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Status(Message):
    action: ClassVar[str] = "status"
    answer: ClassVar[Any] = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Analyse(Message):
    """The types of expressions over these columns."""

    action: ClassVar[str] = "analyse"
    answer: ClassVar[Any] = Any
    columns: tuple[Column, ...]
    expressions: list[Any]
    aggregate: bool = False


@dataclass(frozen=True, slots=True)
class Plans(Message):
    """How the expressions of a task would be evaluated; nothing changes."""

    action: ClassVar[str] = "plans"
    answer: ClassVar[Any] = Any
    task: TaskSpec


@dataclass(frozen=True, slots=True)
class Calibrate(Message):
    """What an instance of a task would cost here, tried out on made-up tuples: `fixed_us` and
    `per_tuple_us`, or None if that cannot be tried. Nothing changes."""

    action: ClassVar[str] = "calibrate"
    answer: ClassVar[Any] = Any
    task: TaskSpec


@dataclass(frozen=True, slots=True)
class LearnModel(Message):
    """The mean and covariance of window results, from all in a table between the ends `oldest` and
    `newest`: of streams like `streams`, a window every `slide` µs. `keys`: the columns of the
    model."""

    action: ClassVar[str] = "learn_model"
    answer: ClassVar[Any] = Any
    url: str
    table: str
    streams: str
    key_columns: tuple[str, ...]
    value: str
    keys: list[list[Any]]
    oldest: int
    newest: int
    slide: int


@dataclass(frozen=True, slots=True)
class CheckTypes(Message):
    action: ClassVar[str] = "check_types"
    answer: ClassVar[Any] = Any
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class DescribePocket(Message):
    """What the class `module:Class` says, whose file lies in `base`, under a name."""

    action: ClassVar[str] = "describe_pocket"
    answer: ClassVar[Any] = dict[str, Any]
    name: str
    class_: str
    base: str


@dataclass(frozen=True, slots=True)
class StageSize(Message):
    """About how many tuples there are in the source of a stage, which need not run."""

    action: ClassVar[str] = "stage_size"
    answer: ClassVar[Any] = int
    stage: Stage


@dataclass(frozen=True, slots=True)
class StateQuery(Message):
    """What Spark SQL makes of the windows that a stage has so far, as `operators` would give them
    out; `before` and `after` are the text around the name of that table."""

    action: ClassVar[str] = "state_query"
    answer: ClassVar[Any] = dict[str, Any]
    stream: str
    operators: tuple[Operator, ...]
    before: str
    after: str


# -- streams that programs fill ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schema(Message):
    action: ClassVar[str] = "schema"
    answer: ClassVar[Any] = str
    stream: str


@dataclass(frozen=True, slots=True)
class Push(Message):
    """Rows as `site.sources.open_stream` encodes them. A `writer` that had no answer sends the
    same `number` again: its rows are there once."""

    action: ClassVar[str] = "push"
    answer: ClassVar[Any] = bool
    stream: str
    rows: str
    writer: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class End(Message):
    action: ClassVar[str] = "end"
    stream: str


# -- to the coordinator --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join(Message):
    """A site is about to start; answered with the cluster and the number of this life of it."""

    action: ClassVar[str] = "join"
    answer: ClassVar[Any] = dict[str, Any]
    site: str
    pid: int
    protocol: int = 0
    version: str = "of an earlier version"


@dataclass(frozen=True, slots=True)
class News:
    """Where all sites are, and who produces what. What runs at the site that is told so and is not
    `wanted`, if that is said, is to stop."""

    addresses: dict[str, str]
    routes: dict[str, Route]
    wanted: Wanted | None = None
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """What runs at a site."""

    action: ClassVar[str] = "heartbeat"
    answer: ClassVar[Any] = News
    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Execute(Message):
    """`wait`: for sites that are being started. `readers`: new query → who is going to follow it
    from its first tuple on."""

    action: ClassVar[str] = "execute"
    answer: ClassVar[Any] = list[dict[str, Any]]
    text: str
    name: str
    base: str
    wait: bool = True
    readers: dict[str, str] = field(default_factory=dict)
    unnamed: str = ""
    pockets: list[dict[str, Any]] = field(default_factory=list)
    """Submitted with it, and deployed together."""
    pocket_readers: list[str] = field(default_factory=list)
    """Of each, who is going to follow its output; empty if nobody is."""


@dataclass(frozen=True, slots=True)
class Submit(Message):
    action: ClassVar[str] = "submit"
    answer: ClassVar[Any] = dict[str, Any]
    pocket: dict[str, Any]
    base: str
    reader: str = ""
    wait: bool = True


@dataclass(frozen=True, slots=True)
class MoveQuery(Message):
    action: ClassVar[str] = "move"
    answer: ClassVar[Any] = dict[str, Any]
    query: str
    site: str


@dataclass(frozen=True, slots=True)
class ReplanAll(Message):
    """Place again what runs; with `dry_run` only say what would move."""

    action: ClassVar[str] = "replan"
    answer: ClassVar[Any] = dict[str, Any]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Samples(Message):
    """What was measured of the network."""

    action: ClassVar[str] = "samples"
    answer: ClassVar[Any] = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Picture(Message):
    """What runs, on its sites."""

    action: ClassVar[str] = "picture"
    answer: ClassVar[Any] = str


@dataclass(frozen=True, slots=True)
class Stop(Message):
    action: ClassVar[str] = "stop"


# -- as bytes ------------------------------------------------------------------------------------


_adapters: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def read(kind: type[Message], data: bytes) -> Any:
    """Raises ProtocolError if `data` is no such message. What a later version has added to it, at
    any depth, is ignored."""
    try:
        return _adapter(kind).validate_json(data or b"{}", extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ProtocolError(f"message {kind.action}: {where}: {first['msg']}") from None


def written(value: Any) -> bytes:
    return to_json(value)


def read_answer(kind: type[Message], value: Any) -> Any:
    if kind.answer is None:
        return value
    return _adapter(kind.answer).validate_python(value, extra="ignore")
