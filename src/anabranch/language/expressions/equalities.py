"""Equalities between expressions of two inputs: what a join can have an index for."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from anabranch.language.expressions.conjuncts import Conjunct, conjuncts
from anabranch.language.expressions.pieces import expr
from anabranch.language.expressions.scope import Scope
from anabranch.language.grammar.lexer import Token
from anabranch.language.grammar.statements import Expression
from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Equality, indexable

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")

Sides = tuple[Expr, Expr]


def sides(scope: Scope, expression: Expression) -> list[Sides | None]:
    """For each conjunct of `expression`: its two sides, if it says that expressions of two
    different inputs are equal and nothing else; otherwise None.
    """
    placed = scope.placed(expression)
    found: list[Sides | None] = []
    for part in conjuncts(expression):
        pair = _split(_bare(part))
        both = [expr(scope.script, tokens, placed) for tokens in pair] if pair else []
        inputs = [side.inputs for side in both]
        between = len(both) == 2 and all(len(one) == 1 for one in inputs) and inputs[0] != inputs[1]
        found.append((both[0], both[1]) if between else None)
    return found


def equality(sides: Sides, types: tuple[str, str]) -> Equality | None:
    """What is computed of each input and compared; None if there is no index for values of its
    type.
    """
    left, right = (type_.lower() for type_ in types)
    if left == right and indexable(left):
        return Equality(sides=sides, type=left)
    if left in _WHOLE_NUMBERS and right in _WHOLE_NUMBERS:
        return Equality(sides=(_widened(sides[0]), _widened(sides[1])), type="bigint")
    return None


def _widened(side: Expr) -> Expr:
    first, *middle, last = f"CAST({side.pieces[0]}", *side.pieces[1:-1], side.pieces[-1]
    return Expr(pieces=(first, *middle, f"{last} AS BIGINT)"), uses=side.uses)


def _bare(part: Conjunct) -> Conjunct:
    """The conjunct without the brackets around all of it."""
    while isinstance(part.tree, exp.Paren) and part.tokens[0].key == "(":
        part = Conjunct(part.tokens[1:-1], part.tree.this)
    return part


def _split(part: Conjunct) -> tuple[Sequence[Token], Sequence[Token]] | None:
    """The tokens on both sides of the `=`, if there is exactly one."""
    if not isinstance(part.tree, exp.EQ):
        return None
    depth, found = 0, list[int]()
    for index, token in enumerate(part.tokens):
        depth += (token.key in ("(", "[", "CASE")) - (token.key in (")", "]", "END"))
        if depth == 0 and token.key in ("=", "=="):
            found.append(index)
    if len(found) != 1:
        return None
    before, after = part.tokens[: found[0]], part.tokens[found[0] + 1 :]
    return (before, after) if before and after else None
