"""Spark SQL expressions: where one ends, and how sqlglot reads it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError

from anabranch.errors import ScriptError
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.statements import ColumnRef, Expression, Name
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.grammar.translations import clause, reject_function
from anabranch.language.source import Span, did_you_mean_keyword

_BRACKETS = {")": "(", "]": "["}
_AWAITS_OPERAND = frozenset(
    {
        "AND",
        "AS",
        "BETWEEN",
        "CASE",
        "COLLATE",
        "DISTINCT",
        "DIV",
        "ELSE",
        "ESCAPE",
        "ILIKE",
        "IN",
        "INTERVAL",
        "IS",
        "LIKE",
        "NOT",
        "OR",
        "REGEXP",
        "RLIKE",
        "THEN",
        "WHEN",
        "XOR",
    }
)
_DIALECT = Spark()
# What it cannot read it says on the terminal, if nobody else takes it; we say it in our own words.
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


def ends_operand(token: Token) -> bool:
    """Whether an operand can end with `token`, so that a word after it starts something else.

    This tells the keyword in `Temp > 50 DEADLINE 1s` from the column in `Temp > deadline`.
    """
    if token.kind is TokenKind.SYMBOL:
        return token.key in _BRACKETS
    return token.key not in _AWAITS_OPERAND


def take_expression(cursor: Cursor, stops: Callable[[Cursor, Token | None], bool]) -> list[Token]:
    """Pass the tokens of an expression and return them; there is at least one.

    It ends where the statement does and where `stops(cursor, token before)` holds outside brackets.
    """
    taken: list[Token] = []
    opened: list[Token] = []
    while not cursor.at_end():
        if not opened and stops(cursor, taken[-1] if taken else None):
            break
        taken.append(cursor.advance())
        _match_brackets(cursor, taken[-1], opened)
    if opened:
        raise cursor.error(opened[-1].span, f"'{opened[-1].key}' is never closed")
    if not taken:
        raise cursor.unexpected(("an expression",))
    return taken


def _match_brackets(cursor: Cursor, token: Token, opened: list[Token]) -> None:
    if token.key in _BRACKETS.values():
        opened.append(token)
    elif token.key in _BRACKETS and (not opened or opened.pop().key != _BRACKETS[token.key]):
        raise cursor.error(token.span, f"this '{token.key}' has no '{_BRACKETS[token.key]}'")


def outside_brackets(tokens: Sequence[Token], key: str) -> int | None:
    """The index of the first token `key` that is in no brackets. All brackets must match."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token.key in _BRACKETS.values()) - (token.key in _BRACKETS)
        if not depth and token.key == key:
            return index
    return None


def parse_expression(
    cursor: Cursor, tokens: Sequence[Token], keywords: Sequence[str] = ()
) -> Expression:
    """The expression that `tokens`, at least one, make. `keywords` are those that may follow it."""
    span = tokens[0].span.to(tokens[-1].span)
    tree = _parse_tree(cursor, tokens, keywords)
    return Expression(
        tokens=tuple(tokens),
        sql=cursor.script.slice(span),
        span=span,
        tree=tree,
        columns=_column_refs(tree, span),
        parameters=frozenset(
            parameter.name.lower()
            for node in tree.find_all(exp.Lambda)
            for parameter in node.expressions
        ),
    )


def is_expression(cursor: Cursor, tokens: Sequence[Token]) -> bool:
    try:
        _parse_tree(cursor, tokens, ())
    except ScriptError:
        return False
    return True


def _parse_tree(cursor: Cursor, tokens: Sequence[Token], keywords: Sequence[str]) -> exp.Expr:
    span = tokens[0].span.to(tokens[-1].span)
    raw = [part for token in tokens for part in token.sql]
    try:
        trees = _DIALECT.parser().parse_into(exp.Condition, raw, cursor.script.text)
    except ParseError as error:
        raise _syntax_error(cursor, tokens, error, keywords) from None
    except RecursionError:
        raise cursor.error(span, "this expression is nested too deeply") from None
    except Exception:
        # sqlglot meets some nonsense with errors of Python's; the user's text is at fault.
        raise cursor.error(span, "this is not an expression") from None
    if len(trees) != 1 or trees[0] is None or trees[0].find(exp.Command):
        raise cursor.error(span, "this is not an expression")
    return trees[0]


def _syntax_error(
    cursor: Cursor, tokens: Sequence[Token], error: ParseError, keywords: Sequence[str]
) -> ScriptError:
    if foreign := reject_function(cursor, tokens):
        return foreign
    first = error.errors[0]
    token = _token_at(tokens, first.get("line"), first.get("col"))
    description = first.get("description") or ""
    shown = cursor.show(token)
    if description.startswith("Required keyword"):
        return cursor.error(token.span, f"the expression is incomplete after {shown}")
    if description == "Expecting )":
        return cursor.error(token.span, f"expected ')' but found {shown}")
    if description.startswith("Expected "):
        message = description.replace("Expected TYPE", "Expected a type")
        return cursor.error(token.span, message[0].lower() + message[1:])
    remedy = did_you_mean_keyword(token.text, keywords) or clause(token)
    return cursor.error(token.span, f"did not expect {shown} here", remedy)


def _token_at(tokens: Sequence[Token], line: int | None, column: int | None) -> Token:
    """The token at the place that sqlglot reports; sqlglot counts the end of a token, not its
    start.
    """
    for token in tokens:
        if any((part.line, part.col) == (line, column) for part in token.sql):
            return token
    return tokens[-1]


def _column_refs(tree: exp.Expr, span: Span) -> tuple[ColumnRef, ...]:
    refs = [
        ColumnRef(tuple(_name(part, span) for part in column.parts))
        for column in tree.find_all(exp.Column)
        if not isinstance(column.this, exp.Star) and not _is_parameter(column)
    ]
    return tuple(sorted(refs, key=lambda ref: ref.span.start))


def _name(part: exp.Expr, span: Span) -> Name:
    start, end = part.meta.get("start"), part.meta.get("end")
    return Name(part.name, span if start is None or end is None else Span(start, end + 1))


def _is_parameter(column: exp.Column) -> bool:
    """Whether the column is a lambda's parameter. sqlglot finds most of them itself, but only if
    the case agrees.
    """
    name = column.parts[0].name.lower()
    node = column.find_ancestor(exp.Lambda)
    while node:
        if any(parameter.name.lower() == name for parameter in node.expressions):
            return True
        node = node.find_ancestor(exp.Lambda)
    return False
