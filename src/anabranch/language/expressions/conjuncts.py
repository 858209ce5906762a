"""Splits a WHERE into the conditions that must all hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from anabranch.language.expressions.pieces import expr
from anabranch.language.expressions.safety import Types, column_at, is_safe
from anabranch.language.expressions.scope import Scope
from anabranch.language.grammar.lexer import Token
from anabranch.language.grammar.statements import ColumnRef, Expression
from anabranch.language.source import Span
from anabranch.plan.expressions import Use
from anabranch.plan.operators import Condition, indexable


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
    found: list[exp.Expr] = []
    rest = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, exp.And):
            rest += [node.expression, node.this]
        else:
            found.append(node)
    return found


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
    found = ((ref, scope.resolve(ref)) for ref in refs)
    return {
        ref.span.start: (one.use, one.type.lower())
        for ref, one in found
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
