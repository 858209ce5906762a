"""Statements → definitions: what the names mean, and the operators that compute the result.

Pure: what exists is asked through `lookup`, types through `typer`. Whether a name is taken or a
site exists is not asked here; statements keep the spans to point at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from anabranch.language.lexer import collapsed
from anabranch.language.scope import Scope
from anabranch.language.source import Script, Span
from anabranch.language.statements import (
    CallNode,
    CreateQuery,
    CreateStream,
    Expression,
    FromItem,
    Name,
    SelectItem,
    StarItem,
)
from anabranch.language.wording import did_you_mean_name
from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.operators import Call, Column, Operator, Projection, Selection

Lookup = Callable[[str], StreamDef | QueryDef | None]


@dataclass(frozen=True)
class TypeAnswer:
    """The Spark type of an expression, or why it has none."""

    type: str | None
    error: str = ""


class Typer(Protocol):
    """Answers for each expression over `columns`, in order, when the input is called `alias`."""

    def __call__(
        self, columns: tuple[Column, ...], alias: str, expressions: tuple[str, ...]
    ) -> tuple[TypeAnswer, ...]: ...


@dataclass(frozen=True)
class _Output:
    """One column of a query's output."""

    sql: str
    name: Name
    span: Span


def bind_stream(
    stmt: CreateStream, script: Script, *, default_site: str | None, base: str
) -> StreamDef:
    """The stream that `stmt` declares. Without AT it is at `default_site`."""
    _check_names(script, [column.name for column in stmt.columns], "Choose another name.")
    site = stmt.site or default_site
    if site is None:
        raise script.error(
            stmt.name_span, f"stream {stmt.name} needs AT site", "Add AT and the name of a site."
        )
    return StreamDef(
        name=stmt.name,
        columns=tuple(Column(name=decl.name.text, type=decl.type) for decl in stmt.columns),
        site=site,
        source=_call(stmt.source),
        timestamp=stmt.timestamp.text if stmt.timestamp else None,
        lateness_us=stmt.lateness.us if stmt.lateness else 0,
        text=stmt.text,
        base=base,
    )


def bind_query(
    stmt: CreateQuery,
    script: Script,
    lookup: Lookup,
    names: Iterable[str],
    typer: Typer,
    *,
    base: str,
) -> QueryDef:
    """The query that `stmt` declares. Without AT it is where its input is.

    `names` are those that `lookup` knows, for suggestions. `typer` is called once, with the input's
    columns and `_ts`, for the items and last the condition, if there is one.
    """
    select = stmt.select
    source = _source(script, select.sources[0], lookup, names)
    alias = select.sources[0].alias
    scope = Scope(script, source, alias.text if alias else source.name)
    outputs = _outputs(scope, select.items)
    if select.where:
        scope.check(select.where)
    types = _types(scope, outputs, select.where, typer)
    return QueryDef(
        name=stmt.name,
        columns=tuple(
            Column(name=output.name.text, type=type_)
            for output, type_ in zip(outputs, types, strict=True)
        ),
        site=stmt.site or source.site,
        input=source.name,
        alias=scope.alias,
        operators=_operators(outputs, select.where),
        sink=_call(stmt.sink) if stmt.sink else None,
        text=stmt.text,
        base=base,
    )


def _call(node: CallNode) -> Call:
    return Call(name=node.name, options=node.values)


def _source(
    script: Script, item: FromItem, lookup: Lookup, names: Iterable[str]
) -> StreamDef | QueryDef:
    found = lookup(item.name.text)
    if found is None:
        remedy = did_you_mean_name(item.name.text, names) or "SHOW STREAMS lists those there are."
        raise script.error(item.name.span, f"unknown stream '{item.name.text}'", remedy)
    return found


def _outputs(scope: Scope, items: Iterable[SelectItem | StarItem]) -> list[_Output]:
    outputs = [
        output
        for item in items
        for output in (_star(scope, item) if isinstance(item, StarItem) else [_item(scope, item)])
    ]
    _check_names(
        scope.script,
        [output.name for output in outputs],
        "Give it another name with AS.",
    )
    return outputs


def _star(scope: Scope, item: StarItem) -> list[_Output]:
    if item.qualifier:
        scope.check_qualifier(item.qualifier)
    return [
        _Output(_quoted(column.name), Name(column.name, item.span), item.span)
        for column in scope.source.columns
    ]


def _item(scope: Scope, item: SelectItem) -> _Output:
    expression = item.expression
    scope.check(expression)
    name = item.alias or Name(_default_name(scope, expression), item.span)
    return _Output(expression.sql, name, expression.span)


def _default_name(scope: Scope, expression: Expression) -> str:
    """A column's own name, a field's as written, else the text of the expression."""
    if isinstance(expression.tree, exp.Column):
        ref = expression.columns[0]
        column, parts = scope.resolve(ref)
        return column.name if parts == len(ref.parts) else ref.parts[-1].text
    return collapsed(scope.script, expression.tokens)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _check_names(script: Script, names: list[Name], remedy: str) -> None:
    """Raise if a column's name is reserved or, whatever the case, another's."""
    seen: set[str] = set()
    for name in names:
        if name.text.startswith("_"):
            message = f"'{name.text}' is reserved, as all names that start with _"
            raise script.error(name.span, message, remedy)
        if name.text.lower() in seen:
            message = f"two columns are called '{name.text}'"
            raise script.error(name.span, message, remedy)
        seen.add(name.text.lower())


def _types(
    scope: Scope, outputs: list[_Output], where: Expression | None, typer: Typer
) -> list[str]:
    """The types of `outputs`. Raises if one has none or `where` is not boolean."""
    asked = [(output.sql, output.span) for output in outputs]
    if where:
        asked.append((where.sql, where.span))
    answers = typer(scope.columns, scope.alias, tuple(sql for sql, _ in asked))
    types = []
    for answer, (_, span) in zip(answers, asked, strict=True):
        if answer.type is None:
            raise scope.script.error(span, " ".join(answer.error.split()))
        types.append(answer.type)
    if where and types.pop().lower() != "boolean":
        type_ = (answers[-1].type or "").upper()
        raise scope.script.error(where.span, f"WHERE needs a condition (boolean), this is {type_}")
    return types


def _operators(outputs: list[_Output], where: Expression | None) -> tuple[Operator, ...]:
    projection = Projection(items=tuple((output.sql, output.name.text) for output in outputs))
    return (Selection(condition=where.sql), projection) if where else (projection,)
