"""The SELECT list: the columns of a query's result and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch.language.expressions.scope import Scope, Source
from anabranch.language.grammar.lexer import collapsed
from anabranch.language.grammar.statements import Expression, Name, SelectItem, StarItem
from anabranch.language.source import Script, Span
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.windows import WINDOW_END, WINDOW_START


@dataclass(frozen=True)
class Output:
    """One column of a query's result. `column` is set if it is a column of `column.input`, or a
    field of such a column, and is named after it.
    """

    expr: Expr
    name: Name
    span: Span
    column: Use | None = None


WINDOW_COLUMNS = tuple(Use(input="", column=name) for name in (WINDOW_START, WINDOW_END))
Bind = Callable[[Expression], Expr]
"""How the columns in an expression are bound."""


def outputs(scope: Scope, items: Iterable[SelectItem | StarItem], bind: Bind) -> list[Output]:
    found: list[Output] = []
    for item in items:
        found += _star(scope, item) if isinstance(item, StarItem) else [_item(scope, item, bind)]
    found = _told_apart(found)
    check_names(scope.script, [one.name for one in found], "Give it another name with AS.")
    return found


def _star(scope: Scope, item: StarItem) -> list[Output]:
    sources = [scope.qualifier(item.qualifier)] if item.qualifier else scope.sources
    return [
        _whole(source, column.name, item.span)
        for source in sources
        for column in source.definition.columns
    ]


def _whole(source: Source, column: str, span: Span) -> Output:
    use = Use(input=source.alias, column=column)
    return Output(Expr.of(use.input, use.column), Name(column, span), span, use)


def _item(scope: Scope, item: SelectItem, bind: Bind) -> Output:
    expression = item.expression
    bound = bind(expression)
    if item.alias:
        return Output(bound, item.alias, expression.span)
    if not isinstance(expression.tree, exp.Column):
        return Output(bound, Name(collapsed(scope.script, expression.tokens), item.span), item.span)
    if bound.column and bound.column in WINDOW_COLUMNS:
        return Output(bound, Name(bound.column.column, item.span), item.span)
    ref = expression.columns[0]
    found = scope.resolve(ref)
    name = found.use.column if found.parts == len(ref.parts) else ref.parts[-1].text
    return Output(bound, Name(name, item.span), item.span, found.use)


def _told_apart(found: Sequence[Output]) -> list[Output]:
    """Columns of several inputs with the same name get their input's name too: `Sensor1_Temp`."""
    inputs: dict[str, set[str]] = {}
    for one in found:
        if one.column:
            inputs.setdefault(one.name.text.lower(), set()).add(one.column.input)
    return [
        replace(one, name=Name(f"{one.column.input}_{one.name.text}", one.name.span))
        if one.column and len(inputs[one.name.text.lower()]) > 1
        else one
        for one in found
    ]


def check_names(script: Script, names: Sequence[Name], remedy: str) -> None:
    """Raises if a column's name is reserved, or equals another's whatever the case."""
    seen: set[str] = set()
    for name in names:
        if name.text.startswith("_"):
            message = f"'{name.text}' is reserved, as all names that start with _"
            raise script.error(name.span, message, remedy)
        if name.text.lower() in seen:
            message = f"two columns are called '{name.text}'"
            raise script.error(name.span, message, remedy)
        seen.add(name.text.lower())
