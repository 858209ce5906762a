"""A WHERE as the conditions that must all hold, and those of them that a join can have an index
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from anabranch.language.expressions.safety import Types, column_at, is_safe
from anabranch.language.expressions.scope import Scope, expr
from anabranch.language.grammar.lexer import Token
from anabranch.language.grammar.statements import ColumnRef, Expression
from anabranch.language.source import Span
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import Condition, Equality, indexable


@dataclass(frozen=True)
class Conjunct:
    tokens: tuple[Token, ...]
    tree: exp.Expr

    @property
    def span(self) -> Span:
        return self.tokens[0].span.to(self.tokens[-1].span)


def conjuncts(expression: Expression) -> list[Conjunct]:
    """The conditions that the ANDs of `expression` join, or `expression` itself if it is no AND."""
    parts = _split(expression.tokens)
    trees = list(_flattened(expression.tree))
    if len(parts) != len(trees) or not all(parts):
        return [Conjunct(expression.tokens, expression.tree)]
    return [Conjunct(tuple(part), tree) for part, tree in zip(parts, trees, strict=True)]


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Splits the tokens at each AND outside brackets and CASE that does not belong to a BETWEEN.
    Where an AND binds tighter than an OR, the tree has fewer conjuncts than this has parts.
    """
    parts: list[list[Token]] = [[]]
    depth = betweens = 0
    for token in tokens:
        depth += (token.key in ("(", "[", "CASE")) - (token.key in (")", "]", "END"))
        if depth == 0 and token.key == "BETWEEN":
            betweens += 1
        if depth == 0 and token.key == "AND":
            if betweens == 0:
                parts.append([])
                continue
            betweens -= 1
        parts[-1].append(token)
    return parts


def _flattened(tree: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of ANDs. There is no recursion, because a chain leans to the left and
    may be long.
    """
    operands: list[exp.Expr] = []
    rest = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, exp.And):
            rest += [node.expression, node.this]
        else:
            operands.append(node)
    return operands


def bind_conditions(scope: Scope, expression: Expression) -> list[tuple[Condition, Span]]:
    """Each conjunct over the columns of `scope`, with its place in the text."""
    placed = scope.placed(expression)
    types = _types_at(scope, expression.columns)
    return [
        (
            Condition(
                expr=expr(scope.script, part.tokens, placed),
                equal=_equal(part.tree, types),
                safe=is_safe(part.tree, types),
            ),
            part.span,
        )
        for part in conjuncts(expression)
    ]


def _types_at(scope: Scope, refs: Sequence[ColumnRef]) -> Types:
    places = ((ref, scope.resolve(ref)) for ref in refs)
    return {
        ref.span.start: (one.use, one.type.lower())
        for ref, one in places
        if one.parts == len(ref.parts)
    }


def _equal(tree: exp.Expr, types: Types) -> tuple[Use, Use] | None:
    if not isinstance(tree, exp.EQ):
        return None
    sides = [column_at(side, types) for side in (tree.this, tree.expression)]
    if sides[0] is None or sides[1] is None:
        return None
    (left, left_type), (right, right_type) = sides[0], sides[1]
    same = left_type == right_type and indexable(left_type)
    return (left, right) if left.input != right.input and same else None


_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")

Sides = tuple[Expr, Expr]


def sides(scope: Scope, expression: Expression) -> list[Sides | None]:
    """For each conjunct of `expression`: its two sides, if it says that expressions of two
    different inputs are equal and nothing else; otherwise None.
    """
    placed = scope.placed(expression)
    pairs: list[Sides | None] = []
    for part in conjuncts(expression):
        pair = _two_sides(_bare(part))
        both = [expr(scope.script, tokens, placed) for tokens in pair] if pair else []
        inputs = [side.inputs for side in both]
        between = len(both) == 2 and all(len(one) == 1 for one in inputs) and inputs[0] != inputs[1]
        pairs.append((both[0], both[1]) if between else None)
    return pairs


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


def _two_sides(part: Conjunct) -> tuple[Sequence[Token], Sequence[Token]] | None:
    """The tokens on both sides of the `=`, if there is exactly one."""
    if not isinstance(part.tree, exp.EQ):
        return None
    depth, equals = 0, list[int]()
    for index, token in enumerate(part.tokens):
        depth += (token.key in ("(", "[", "CASE")) - (token.key in (")", "]", "END"))
        if depth == 0 and token.key in ("=", "=="):
            equals.append(index)
    if len(equals) != 1:
        return None
    before, after = part.tokens[: equals[0]], part.tokens[equals[0] + 1 :]
    return (before, after) if before and after else None
