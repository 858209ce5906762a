"""What a script says, as data.

Two nodes are equal when they say the same: places in the text, comments and white space between
tokens do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from anabranch.language.lexer import Token
from anabranch.language.source import Span

OptionValue = str | int | float | bool


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
class Option:
    name: str
    value: OptionValue
    span: Span = field(compare=False)


@dataclass(frozen=True)
class CallNode:
    """A wrapper or sink with its options, each named once."""

    name: str
    options: tuple[Option, ...]
    span: Span = field(compare=False)

    @property
    def values(self) -> dict[str, OptionValue]:
        return {option.name: option.value for option in self.options}


@dataclass(frozen=True)
class ColumnRef:
    """A dotted name in an expression that is not a parameter of a lambda around it."""

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
class FromItem:
    name: Name
    alias: Name | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Select:
    """There is exactly one source."""

    items: tuple[SelectItem | StarItem, ...]
    sources: tuple[FromItem, ...]
    where: Expression | None
    span: Span = field(compare=False)


@dataclass(frozen=True)
class CreateStream:
    name: str
    columns: tuple[ColumnDecl, ...]
    timestamp: Name | None
    lateness: Duration | None
    source: CallNode
    site: str | None
    name_span: Span = field(compare=False)
    site_span: Span | None = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class CreateQuery:
    """A query without a name, as in `EXPLAIN SELECT …`, has the empty name."""

    name: str
    select: Select
    sink: CallNode | None
    site: str | None
    name_span: Span = field(compare=False)
    site_span: Span | None = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Drop:
    kind: Literal["stream", "query"]
    name: str
    if_exists: bool
    name_span: Span = field(compare=False)
    span: Span = field(compare=False)
    text: str = field(compare=False)


@dataclass(frozen=True)
class Show:
    what: Literal["streams", "queries", "sites"]
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
    """`target` is a query that need not exist, or the name of one that does."""

    target: CreateQuery | Name
    span: Span = field(compare=False)
    text: str = field(compare=False)


Statement = CreateStream | CreateQuery | Drop | Show | Describe | Explain
