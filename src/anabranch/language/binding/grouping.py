"""GROUP BY: the keys of an aggregate, and where other expressions repeat a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.language.expressions.aggregates import find_calls
from anabranch.language.expressions.pieces import Element, Placed, elements, expr
from anabranch.language.expressions.scope import Scope
from anabranch.language.grammar.lexer import collapsed
from anabranch.language.grammar.statements import ColumnRef, Expression, Select, SelectItem
from anabranch.language.source import Span
from anabranch.language.wording import clip
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.windows import WINDOW_END, WINDOW_START

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


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


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
