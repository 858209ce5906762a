"""The content of a catalog: streams and tables from outside, and queries, which are streams too."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.keep import Keep
from anabranch.plan.operators import Join, Node
from anabranch.plan.places import Place
from anabranch.plan.service_levels import CostHint, Deadline, Shed, Standby, Urgency
from anabranch.plan.spec import Call, Column, Program, Spec, Where
from anabranch.plan.stage import Stage
from anabranch.plan.windows import GONE

HOUR_US = 3_600_000_000
"""So far event times may be in the future if nothing else is said."""


class StreamDef(Spec):
    """A stream that a source at `site` brings in, or a `stage`, or else a pocket or a program.

    `timestamp` names the source field that holds event time; without it a tuple's event time is the
    moment it enters the system. Tuples that are more than `lateness_us` older than the newest one
    are counted and dropped before they get a position; tuples more than `ahead_us` in the future
    count as malformed.
    """

    kind: Literal["stream"] = "stream"
    name: str
    columns: tuple[Column, ...]
    site: str
    free: bool = False
    """Nobody has said where it is to be: the system has."""
    source: Call | None = None
    timestamp: str | None = None
    unit: str = ""
    """Of event times that are whole numbers, if it is said: s, ms, us or ns. Else they are µs."""
    lateness_us: int = 0
    ahead_us: int | None = HOUR_US
    shed: Shed | None = None
    keep: Keep | None = None
    """What is kept of it for those who come later; None: nothing."""
    places: tuple[Place, ...] = ()
    """The files that it reads."""
    text: str = ""
    base: str = ""
    """Folder that relative paths in `source` start from."""
    stage: Stage | None = None
    born: int = 0
    """The number of its creation: no two definitions of a catalog ever get the same."""

    @property
    def wire_columns(self) -> tuple[Column, ...]:
        return self.columns


class TableDef(Spec):
    """A table that `site` reads whole, repeatedly, and ships as the changes it sees."""

    kind: Literal["table"] = "table"
    name: str
    columns: tuple[Column, ...]
    site: str
    source: Call
    places: tuple[Place, ...] = ()
    """The files that it reads."""
    text: str = ""
    base: str = ""
    born: int = 0
    """The number of its creation: no two definitions of a catalog ever get the same."""

    @property
    def wire_columns(self) -> tuple[Column, ...]:
        """The columns of its stream: see plan.windows.Relation."""
        return (*self.columns, Column(name=GONE, type="bigint"))


class AggregateDef(Spec):
    """A user's aggregate function: a Python class with lift, merge and lower."""

    kind: Literal["aggregate"] = "aggregate"
    name: str
    arguments: tuple[str, ...]
    """Spark SQL types."""
    type: str
    source: Call
    text: str = ""
    base: str = ""


class QueryDef(Spec):
    """A continuous query; its output is a stream of the same name.

    `written` is the query as the user put it, one node; `nodes` are what it was rewritten to, each
    after those it reads. The last of them bears the query's name.
    """

    kind: Literal["query"] = "query"
    name: str
    columns: tuple[Column, ...]
    site: str
    written: Node
    nodes: tuple[Node, ...]
    sink: Call | None = None
    sink_site: str | None = None
    """Where the sink writes, if not at `site`."""
    sink_shared: bool = False
    """Every site can write to it, and one alone does: it goes where the query goes. What others
    write stays where it is."""
    standby: Standby | None = None
    where: Where | None = None
    """Where it may be; None: where it is."""
    keep: Keep | None = None
    """What is kept of its results for those who come later; None: nothing."""
    stages: tuple[str, ...] = ()
    """The streams of its stage, if it has one: that of its windows' results first."""
    stage_why: str = ""
    """Why there is a stage or none, if that was a question."""
    deadline: Deadline | None = None
    cost: CostHint | None = None
    urgencies: dict[str, Urgency] = Field(default_factory=dict)
    """Task → its sub-deadlines, once they are decided; empty without a deadline."""
    part_of: str = ""
    """The approximate query whose worker it is."""
    once: Once | None = None
    """Of a worker: what its results are known by."""
    run: str = ""
    """Names this creation of the query, should another of the same name follow."""
    born: int = 0
    """The number of its creation: no two definitions of a catalog ever get the same."""
    inherited: dict[str, int] = Field(default_factory=dict)
    """Node that ran for others when this was created → the number of the creation it is of."""
    places: tuple[Place, ...] = ()
    """The files that its sink writes."""
    text: str = ""
    base: str = ""

    @property
    def pinned(self) -> bool:
        """Whether it stays at its site, unless somebody moves it. What is kept of it is there."""
        return self.where is None or self.where.pinned or self.keep is not None

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams, tables and queries in its FROM, each once."""
        return tuple(dict.fromkeys(port.stream for port in self.written.inputs))

    @property
    def ends_with(self) -> tuple[str, ...]:
        """The streams that end it once they have all ended: without their tuples it is never
        evaluated.
        """
        if self.stages:
            return tuple(port.stream for port in self.nodes[-1].inputs)
        first, ports = self.written.operators[0], self.written.inputs
        masters = first.masters if isinstance(first, Join) else range(len(ports))
        return tuple(dict.fromkeys(ports[index].stream for index in masters))

    @property
    def wire_columns(self) -> tuple[Column, ...]:
        return self.columns


class PocketDef(Spec):
    """A pocket: reads `input` and fills the stream `output`, which has no source. It never moves,
    except that a `standby` may take over.

    `made` are the definitions that came with it and go with it.
    """

    kind: Literal["pocket"] = "pocket"
    name: str
    input: str
    output: str
    site: str
    program: Program
    standby: Standby | None = None
    made: tuple[str, ...] = ()
    text: str = ""
    born: int = 0
    """The number of its creation: no two definitions of a catalog ever get the same."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.input,)


class Approximate(Spec):
    """What APPROXIMATE asks for."""

    epsilon: float
    confidence: float
    sites: tuple[str, ...]
    """Of the workers, in order."""
    failures: int = 1
    """So many workers may be lost at the same time."""


class Once(Spec):
    """Where all streams `query/…` of an approximate query write to one table: a result is in it
    once for each event time and each value of `keys`, and an exact one replaces an estimate.
    """

    query: str
    keys: tuple[str, ...]


class Generation(Spec):
    """A query that computes a worker's keys, and delivers windows that end at `since` (µs) or
    later. If it was `handed` them, the generation before it was alive, and delivered all earlier
    windows.
    """

    query: str
    since: int = 0
    handed: bool = False


class Worker(Spec):
    """The last of `generations` computes its keys, at `site`; those before it have died, or handed
    the keys over.
    """

    site: str
    generations: tuple[Generation, ...]

    @property
    def query(self) -> str:
        return self.generations[-1].query

    @property
    def since(self) -> int:
        return self.generations[-1].since


class ApproximateDef(Spec):
    """An approximate query; its workers are queries of their own. `template` is the query as
    written, over all keys, with the columns that tell estimates and results apart.
    """

    kind: Literal["approximate"] = "approximate"
    name: str
    columns: tuple[Column, ...]
    site: str
    asked: Approximate
    template: QueryDef
    keys: tuple[str, ...]
    """The columns that hold the key."""
    value: str
    """The column that is estimated."""
    width_us: int
    slide_us: int
    assignment: tuple[tuple[str, ...], ...] = ()
    """The keys of each worker, as text; others are dealt out by their hash."""
    dealt: int = 0
    """From how many windows was known what made somebody deal them out anew; 0: nobody has."""
    leaving: tuple[str, ...] = ()
    """Queries that hand their keys over: they run until the windows before that are out."""
    workers: tuple[Worker, ...] = ()
    text: str = ""
    base: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return self.template.reads

    @property
    def sink(self) -> Call:
        assert self.template.sink is not None
        return self.template.sink

    @property
    def lags(self) -> int:
        """How many windows overlap at any time: a death costs that many."""
        return -(-self.width_us // self.slide_us)


Relation = StreamDef | TableDef | QueryDef
"""What may stand in FROM."""
AnyDef = StreamDef | TableDef | AggregateDef | QueryDef | PocketDef | ApproximateDef
Definition = Annotated[AnyDef, Field(discriminator="kind")]
