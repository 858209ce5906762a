"""What a script says, as data.

Two nodes are equal when they say the same: places in the text, comments and white space between
tokens do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from anabranch.language.grammar.lexer import Token
from anabranch.language.source import Span
from anabranch.plan.keep import Keep, Past
from anabranch.plan.service_levels import CostHint, Deadline, Standby
from anabranch.plan.spec import Secret

OptionValue = str | int | float | bool | Secret
DropKind = Literal["stream", "table", "query", "aggregate", "pocket", "secret"]
ShowKind = Literal["streams", "tables", "queries", "aggregates", "pockets", "sites", "secrets"]
Origin = Literal["env", "file", "given"]


@dataclass(frozen=True)
class Name:
    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Duration:
    us: int
    text: str = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True)
class ColumnDecl:
    """`type` is the type as the script writes it, on one line."""

    name: Name
    type: str
    span: Span = field(compare=False)
    type_span: Span = field(compare=False)


@dataclass(frozen=True)
class OptionNode:
    name: str
    value: OptionValue
    span: Span = field(compare=False)


@dataclass(frozen=True)
class CallNode:
    """A source or sink with its options, each named once."""

    name: str
    options: tuple[OptionNode, ...]
    span: Span = field(compare=False)

    @property
    def values(self) -> dict[str, OptionValue]:
        return {option.name: option.value for option in self.options}


@dataclass(frozen=True)
class ColumnRef:
    """A dotted name in an expression. Parameters of a lambda around it are not among them."""

    parts: tuple[Name, ...]

    @property
    def span(self) -> Span:
        return self.parts[0].span.to(self.parts[-1].span)


@dataclass(frozen=True)
class Expression:
    """A Spark SQL expression.

    `sql` is the text as written, for Spark; `tree` is sqlglot's reading of it, for questions about
    it; `columns` are its column references and `parameters` the lower-case names of its lambda
    parameters.
    """

    tokens: tuple[Token, ...] = field(repr=False)
    sql: str = field(compare=False)
    span: Span = field(compare=False)
    tree: exp.Expr = field(compare=False, repr=False)
    columns: tuple[ColumnRef, ...] = field(compare=False)
    parameters: frozenset[str] = field(compare=False)


@dataclass(frozen=True)
class SelectItem:
    """An expression and the name that the script gives it, if any."""

    expression: Expression
    alias: Name | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class StarItem:
    """`*` or `qualifier.*`."""

    qualifier: Name | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class RowCount:
    """A number of rows, as in `10 ROWS`."""

    rows: int
    span: Span = field(compare=False)


Extent = Duration | RowCount


@dataclass(frozen=True)
class WindowNode:
    """The brackets of `S[10s]` or `S[100 ROWS SLIDE 10]`; both extents are durations or both are
    rows.
    """

    width: Extent
    slide: Extent | None
    span: Span = field(compare=False)
    """Brackets included."""


@dataclass(frozen=True)
class PastNode:
    """BEGINNING, or SINCE and a time."""

    asked: Past
    span: Span = field(compare=False)


@dataclass(frozen=True)
class FromItem:
    name: Name
    window: WindowNode | None
    alias: Name | None
    span: Span = field(compare=False)
    past: PastNode | None = None


@dataclass(frozen=True)
class Select:
    masters: tuple[Name, ...]
    items: tuple[SelectItem | StarItem, ...]
    sources: tuple[FromItem, ...]
    where: Expression | None
    group: tuple[Expression, ...]
    having: Expression | None
    span: Span = field(compare=False)
    union: tuple[Name, ...] = ()
    """The streams behind UNION ALL SELECT * FROM."""


@dataclass(frozen=True)
class ShedNode:
    """SHED ABOVE `most` every `per_us` KEEP BY `keep`."""

    most: int
    per_us: int
    keep: Expression
    span: Span = field(compare=False)


@dataclass(frozen=True)
class KeepNode:
    """KEEP 7d, KEEP 20GB, or both."""

    asked: Keep
    span: Span = field(compare=False)


@dataclass(frozen=True)
class CreateStream:
    """CREATE STREAM. If `source` is missing, programs fill the stream."""

    name: str
    columns: tuple[ColumnDecl, ...]
    timestamp: Name | None
    unit: str | None
    """Of event times that are whole numbers."""
    lateness: Duration | None
    ahead: Duration | None
    shed: ShedNode | None
    keep: KeepNode | None
    source: CallNode | None
    site: str | None
    name_span: Span = field(compare=False)
    site_span: Span | None = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class CreateTable:
    name: str
    columns: tuple[ColumnDecl, ...]
    source: CallNode
    site: str | None
    name_span: Span = field(compare=False)
    site_span: Span | None = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class TypeNode:
    """A type as the script writes it, on one line."""

    text: str
    span: Span = field(compare=False)


@dataclass(frozen=True)
class CreateAggregate:
    name: str
    arguments: tuple[TypeNode, ...]
    returns: TypeNode
    source: CallNode
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class CreatePocket:
    """`class_` is `module:Class`; the class itself says what it reads and fills."""

    name: str
    class_: str
    source: CallNode
    site: Name | None
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class CreateSecret:
    """CREATE SECRET. `origin` says what `source` is: the name of a variable, a path, or the secret
    itself.
    """

    name: str
    origin: Origin
    source: str = field(repr=False)
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)


@dataclass(frozen=True)
class StandbyNode:
    """The STANDBY clause; `on` is the site that `asked` names, with its place in the text."""

    asked: Standby
    on: Name | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class StageNode:
    """`STAGE(option = value, …) ON site, …`, or `NO STAGE`."""

    wanted: bool
    call: CallNode
    sites: tuple[Name, ...] = ()


@dataclass(frozen=True)
class ApproximateNode:
    """The APPROXIMATE clause; `sites` is empty if the statement names none."""

    epsilon: float
    confidence: float
    failures: int
    sites: tuple[Name, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True)
class CreateQuery:
    """CREATE QUERY, or a SELECT alone or after EXPLAIN; the latter two have the empty name."""

    name: str
    select: Select
    sink: CallNode | None
    sink_site: Name | None
    standby: StandbyNode | None
    stage: StageNode | None
    deadline: Deadline | None
    cost: CostHint | None
    keep: KeepNode | None
    approximate: ApproximateNode | None
    at: tuple[Name, ...]
    """The sites of AT, of which it may have any."""
    never: tuple[Name, ...]
    """Those of NOT AT."""
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Drop:
    kind: DropKind
    name: str
    if_exists: bool
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Resume:
    """`RESUME QUERY name WITHOUT first TO last`: its sink has lost these results, and a person
    gives them up."""

    name: str
    first: int
    last: int
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Show:
    what: ShowKind
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Describe:
    name: str
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Explain:
    """EXPLAIN; `target` is a query that need not exist, or the name of one that does."""

    target: CreateQuery | Name
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class SelectState:
    """`SELECT … FROM STATE name …`, answered once. `before` and `after` are the text around
    `STATE name`, for Spark."""

    name: Name
    before: str
    after: str
    span: Span = field(compare=False)
    text: str = field(compare=False)


Create = CreateStream | CreateTable | CreateQuery | CreateAggregate | CreatePocket
Statement = Create | CreateSecret | Drop | Resume | Show | Describe | Explain | SelectState
