"""The columns of a query's result: its SELECT list and what they are called, and its GROUP BY,
of which other expressions may say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch.language.expressions.aggregates import find_calls
from anabranch.language.expressions.scope import Element, Placed, QueryInput, Scope, elements, expr
from anabranch.language.grammar.lexer import collapsed
from anabranch.language.grammar.statements import (
    ColumnRef,
    Expression,
    Name,
    Select,
    SelectItem,
    StarItem,
)
from anabranch.language.source import Script, Span, clip
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.windows import WINDOW_END, WINDOW_START


@dataclass(frozen=True)
class OutputColumn:
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


def outputs(scope: Scope, items: Iterable[SelectItem | StarItem], bind: Bind) -> list[OutputColumn]:
    columns: list[OutputColumn] = []
    for item in items:
        columns += _star(scope, item) if isinstance(item, StarItem) else [_item(scope, item, bind)]
    columns = _told_apart(columns)
    check_names(scope.script, [one.name for one in columns], "Give it another name with AS.")
    return columns


def _star(scope: Scope, item: StarItem) -> list[OutputColumn]:
    sources = [scope.qualifier(item.qualifier)] if item.qualifier else scope.sources
    return [
        _whole(source, column.name, item.span)
        for source in sources
        for column in source.definition.columns
    ]


def _whole(source: QueryInput, column: str, span: Span) -> OutputColumn:
    use = Use(input=source.alias, column=column)
    return OutputColumn(Expr.of(use.input, use.column), Name(column, span), span, use)


def _item(scope: Scope, item: SelectItem, bind: Bind) -> OutputColumn:
    expression = item.expression
    bound = bind(expression)
    if item.alias:
        return OutputColumn(bound, item.alias, expression.span)
    if not isinstance(expression.tree, exp.Column):
        return OutputColumn(
            bound, Name(collapsed(scope.script, expression.tokens), item.span), item.span
        )
    if bound.column and bound.column in WINDOW_COLUMNS:
        return OutputColumn(bound, Name(bound.column.column, item.span), item.span)
    ref = expression.columns[0]
    place = scope.resolve(ref)
    name = place.use.column if place.parts == len(ref.parts) else ref.parts[-1].text
    return OutputColumn(bound, Name(name, item.span), item.span, place.use)


def _told_apart(outputs: Sequence[OutputColumn]) -> list[OutputColumn]:
    """Columns of several inputs with the same name get their input's name too: `Sensor1_Temp`."""
    inputs: dict[str, set[str]] = {}
    for output in outputs:
        if output.column:
            inputs.setdefault(output.name.text.lower(), set()).add(output.column.input)
    return [
        replace(one, name=Name(f"{one.column.input}_{one.name.text}", one.name.span))
        if one.column and len(inputs[one.name.text.lower()]) > 1
        else one
        for one in outputs
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


_BOUNDS = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True)
class Key:
    """One expression of GROUP BY; `name` is what the operators after the aggregate call it."""

    name: str
    expr: Expr
    text: str
    span: Span
    elements: tuple[str | Use, ...]

    @property
    def use(self) -> Use:
        return Use(input="", column=self.name)


def window_bound(ref: ColumnRef) -> Use | None:
    """The query's own window_start or window_end; an input's column of that name is qualified."""
    low = ref.parts[0].text.lower()
    return Use(input="", column=low) if len(ref.parts) == 1 and low in _BOUNDS else None


def bind_keys(scope: Scope, select: Select) -> list[Key]:
    """The keys, each once. The window's own bounds are always among them and need not be
    written.
    """
    keys: list[Key] = []
    for written in select.group:
        expression = _meant(scope, select, written)
        refs = expression.columns
        if len(refs) == len(expression.tokens) == 1 and window_bound(refs[0]):
            continue
        key = _key(scope, expression, written.span, len(keys))
        if all(key.elements != one.elements for one in keys):
            keys.append(key)
    return keys


def _meant(scope: Scope, select: Select, written: Expression) -> Expression:
    """`written`, or the item of SELECT that it names."""
    if written.tree.is_int:
        number = int(written.tree.name)
        items = [item for item in select.items[:number] if isinstance(item, SelectItem)]
        known = 0 < number == len(items) and not find_calls(items[-1].expression.tokens, _none)
        meant = clip(items[-1].expression.sql) if known else "the expression itself"
        message = "GROUP BY takes expressions, not their numbers"
        raise scope.script.error(written.span, message, f"Write {meant}.")
    if len(written.tokens) != 1 or len(written.columns) != 1:
        return written
    name = written.columns[0].parts[0].text.lower()
    if name in scope.names:
        return written
    named = (item for item in select.items if isinstance(item, SelectItem) and item.alias)
    return next(
        (item.expression for item in named if item.alias and item.alias.text.lower() == name),
        written,
    )


def _none(name: str) -> bool:
    return False


def _key(scope: Scope, expression: Expression, span: Span, index: int) -> Key:
    placed = scope.placed(expression)
    bound = expr(scope.script, expression.tokens, placed)
    parts = elements(scope.script, expression.tokens, placed)
    column = bound.column.column if bound.column else ""
    usual = column and not column.startswith("_") and column.lower() not in _BOUNDS
    name = column if usual else f"_key{index}"
    text = collapsed(scope.script, expression.tokens)
    return Key(name, bound, text, span, tuple(part.key for part in parts))


def place_keys(parts: Sequence[Element], keys: Sequence[Key]) -> list[Placed]:
    """The places where `parts` of an expression repeat a key; longer keys are tried first."""
    placed: list[Placed] = []
    for key in sorted(keys, key=lambda one: -len(one.elements)):
        for first in range(len(parts) - len(key.elements) + 1):
            stretch = parts[first : first + len(key.elements)]
            span = stretch[0].span.to(stretch[-1].span)
            if (
                tuple(part.key for part in stretch) == key.elements
                and _stands_alone(parts, first, key.elements)
                and not any(_overlap(span, one.span) for one in placed)
            ):
                placed.append(Placed(span, key.use))
    return placed


def _overlap(span: Span, other: Span) -> bool:
    return span.start < other.end and other.start < span.end


def _stands_alone(parts: Sequence[Element], first: int, key: tuple[str | Use, ...]) -> bool:
    """Whether the key at `first` is an operand by itself; `a + b` is not in `a + b * 2`."""
    before = parts[first - 1].key if first else "("
    behind = first + len(key)
    after = parts[behind].key if behind < len(parts) else ")"
    if _is_operand(key):
        return before != "."
    return before in ("(", ",") and after in (")", ",")


def _is_operand(key: tuple[str | Use, ...]) -> bool:
    """Whether the key is a column, perhaps with fields, a value, `f(…)` or `(…)`."""
    if len(key) == 1 or (isinstance(key[0], Use) and set(key[1::2]) == {"."}):
        return True
    opening = next((index for index in (0, 1) if key[index] == "("), None)
    if opening is None:
        return False
    depth = 0
    for index in range(opening, len(key)):
        depth += (key[index] == "(") - (key[index] == ")")
        if not depth:
            return index == len(key) - 1
    return False
