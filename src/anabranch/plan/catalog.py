"""What a catalog holds: streams and tables from outside, and queries, which are streams too."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.graph import Node
from anabranch.plan.operators import Join
from anabranch.plan.program import Program
from anabranch.plan.protection import Standby
from anabranch.plan.spec import Call, Column, Spec
from anabranch.plan.windows import GONE


class StreamDef(Spec):
    """A stream that a wrapper at `site` brings in, or without `source` a pocket or a program.

    `timestamp` names the source field that holds event time; without it a tuple's event time is
    the moment it enters the system. Tuples later than `lateness_us` behind the newest one are
    counted and dropped before they get a position.
    """

    kind: Literal["stream"] = "stream"
    name: str
    columns: tuple[Column, ...]
    site: str
    source: Call | None = None
    timestamp: str | None = None
    lateness_us: int = 0
    text: str = ""
    base: str = ""
    """Folder that relative paths in `source` start from."""

    @property
    def wire_columns(self) -> tuple[Column, ...]:
        return self.columns


class TableDef(Spec):
    """A table that `site` reads whole, again and again, and ships as the changes it sees."""

    kind: Literal["table"] = "table"
    name: str
    columns: tuple[Column, ...]
    site: str
    source: Call
    text: str = ""
    base: str = ""

    @property
    def wire_columns(self) -> tuple[Column, ...]:
        """What its stream holds: see plan.windows.Relation."""
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

    `written` is the query as the user put it, one node; `nodes` what it was rewritten to, each
    behind those it reads. The last of them bears the query's name.
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
    standby: Standby | None = None
    run: str = ""
    """Names this creation of the query, should another of the same name follow."""
    text: str = ""
    base: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """The streams, tables and queries in its FROM, each once."""
        return tuple(dict.fromkeys(port.stream for port in self.written.inputs))

    @property
    def ends_with(self) -> tuple[str, ...]:
        """The streams that end it once they have all ended: without instants there is nothing."""
        first, ports = self.written.operators[0], self.written.inputs
        masters = first.masters if isinstance(first, Join) else range(len(ports))
        return tuple(dict.fromkeys(ports[index].stream for index in masters))

    @property
    def wire_columns(self) -> tuple[Column, ...]:
        return self.columns


class PocketDef(Spec):
    """A pocket: reads `input`, fills the stream `output`, which has no wrapper. Never moved, but by
    a `standby` that takes over.

    `made` are the definitions that came with it and go with it."""

    kind: Literal["pocket"] = "pocket"
    name: str
    input: str
    output: str
    site: str
    program: Program
    standby: Standby | None = None
    made: tuple[str, ...] = ()
    text: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.input,)


Relation = StreamDef | TableDef | QueryDef
"""What may stand in FROM."""
AnyDef = StreamDef | TableDef | AggregateDef | QueryDef | PocketDef
Definition = Annotated[AnyDef, Field(discriminator="kind")]
