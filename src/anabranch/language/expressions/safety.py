"""Finds the conditions that can be evaluated for any tuple, because evaluating them never fails.

In ANSI mode Spark fails on overflow, division by zero and casts of text that is no number. What is
not known to be harmless counts as harmful.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from anabranch.plan.expressions import Use

Types = dict[int, tuple[Use, str]]
"""By the place where a column, and nothing but a column, starts in the text: what it is."""

_FLOATS = frozenset({"float", "double"})
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_LONGEST_NUMBER = 15
"""Characters of a number that any type it is compared in has room for."""

FLOAT, NUMBER, TEXT, BOOLEAN, NULL = "float", "number", "string", "boolean", "null"
"""Families of types, within which comparing casts nothing that could fail. Types that are in none
of them are families of their own, under their own names."""


def is_safe(tree: exp.Expr, types: Types) -> bool:
    try:
        return _family(tree, types) == BOOLEAN
    except RecursionError:
        return False


def _family(node: exp.Expr, types: Types) -> str | None:
    """The family of `node`'s type if evaluating it cannot fail, else None."""
    for kinds, rule in _RULES:
        if isinstance(node, kinds):
            return rule(node, types)
    return None


def column_at(node: exp.Expr, types: Types) -> tuple[Use, str] | None:
    """The column that `node` is, with its type; None if `node` is more than a column."""
    if not isinstance(node, exp.Column):
        return None
    return types.get(node.parts[0].meta.get("start", -1))


def _column(node: exp.Expr, types: Types) -> str | None:
    column = column_at(node, types)
    if column is None:
        return None
    type_ = column[1]
    return FLOAT if type_ in _FLOATS else NUMBER if type_ in _INTEGERS else type_


def _literal(node: exp.Expr, types: Types) -> str | None:
    if node.is_string:
        return TEXT
    return NUMBER if len(node.name) <= _LONGEST_NUMBER and _value(node) is not None else None


def _value(node: exp.Expr) -> float | None:
    """The value of a plain number; None if a suffix gives it a type."""
    try:
        return float(node.name)
    except ValueError:
        return None


def _negative(node: exp.Expr, types: Types) -> str | None:
    """The family of `-x`. It may overflow for the smallest whole number; a literal cannot."""
    family = _family(node.this, types)
    return family if family == FLOAT or isinstance(node.this, exp.Literal) else None


def _same(node: exp.Expr, types: Types) -> str | None:
    return _family(node.this, types)


def _compared(*families: str | None) -> str | None:
    """BOOLEAN if values of these families can be compared with each other."""
    if None in families:
        return None
    kinds = {NUMBER if family == FLOAT else family for family in families} - {NULL}
    return BOOLEAN if len(kinds) <= 1 else None


def _comparison(node: exp.Expr, types: Types) -> str | None:
    return _compared(_family(node.this, types), _family(node.expression, types))


def _between(node: exp.Expr, types: Types) -> str | None:
    ends = (_family(node.args[end], types) for end in ("low", "high"))
    return _compared(_family(node.this, types), *ends)


def _in(node: exp.Expr, types: Types) -> str | None:
    if any(value for key, value in node.args.items() if key not in ("this", "expressions")):
        return None
    return _compared(*(_family(one, types) for one in (node.this, *node.expressions)))


def _like(node: exp.Expr, types: Types) -> str | None:
    """BOOLEAN if the pattern cannot fail. A wrong pattern fails, and a pattern without a backslash
    is never wrong.
    """
    pattern = node.expression
    known = isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name
    return BOOLEAN if known and _family(node.this, types) == TEXT else None


def _logical(node: exp.Expr, types: Types) -> str | None:
    sides = [_family(side, types) for side in (node.this, node.args.get("expression")) if side]
    return BOOLEAN if all(side in (BOOLEAN, NULL) for side in sides) else None


def _is(node: exp.Expr, types: Types) -> str | None:
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        return None
    family = _family(node.this, types)
    if isinstance(node.expression, exp.Boolean):
        return BOOLEAN if family == BOOLEAN else None
    return BOOLEAN if family else None


def _arithmetic(node: exp.Expr, types: Types) -> str | None:
    """The family of a sum, difference or product of floating-point numbers: these become infinite
    instead of overflowing.
    """
    families = {_family(node.this, types), _family(node.expression, types)}
    return FLOAT if FLOAT in families and families <= {FLOAT, NUMBER} else None


def _division(node: exp.Expr, types: Types) -> str | None:
    divisor = node.expression
    nonzero = isinstance(divisor, exp.Literal) and not divisor.is_string and _value(divisor)
    return FLOAT if nonzero and _family(node.this, types) == FLOAT else None


_RULES: tuple[
    tuple[type[exp.Expr] | tuple[type[exp.Expr], ...], Callable[[exp.Expr, Types], str | None]],
    ...,
] = (
    (exp.Column, _column),
    (exp.Literal, _literal),
    (exp.Boolean, lambda node, types: BOOLEAN),
    (exp.Null, lambda node, types: NULL),
    (exp.Paren, _same),
    (exp.Neg, _negative),
    (_COMPARISONS, _comparison),
    (exp.Between, _between),
    (exp.In, _in),
    ((exp.Like, exp.ILike), _like),
    (exp.Is, _is),
    ((exp.And, exp.Or, exp.Not), _logical),
    ((exp.Add, exp.Sub, exp.Mul), _arithmetic),
    (exp.Div, _division),
)
