"""Spark's functions that a query over a stream may not call, and why.

A query's output must be a function of its input alone: after a failure it is computed again, and
a standby computes it at the same time elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

from sqlglot import exp

from anabranch.errors import ScriptError
from anabranch.language.grammar import translations
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.statements import Expression
from anabranch.language.source import Script, Span

_CLOCK = frozenset({
    "NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURDATE", "CURRENT_TIME", "LOCALTIMESTAMP",
    "LOCALTIME",
})  # fmt: skip
_RANDOM = frozenset({
    "RAND", "RANDN", "RANDOM", "RANDSTR", "SHUFFLE", "UNIFORM", "UUID",
})  # fmt: skip
_ELSEWHERE = frozenset({
    "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_SCHEMA", "CURRENT_TIMEZONE", "CURRENT_USER",
    "INPUT_FILE_BLOCK_LENGTH", "INPUT_FILE_BLOCK_START", "INPUT_FILE_NAME", "JAVA_METHOD",
    "MONOTONICALLY_INCREASING_ID", "REFLECT", "SESSION_USER", "SPARK_PARTITION_ID", "TRY_REFLECT",
    "USER", "VERSION",
})  # fmt: skip
_CHANGES = "gives another value each time"
_NOW = (_CHANGES, "Use _ts, the event time in µs.")
_UNREPEATABLE = (
    dict.fromkeys(_CLOCK, _NOW)
    | dict.fromkeys(_RANDOM, (_CHANGES, "Use a function of the columns, such as hash(...)."))
    | dict.fromkeys(
        _ELSEWHERE,
        ("depends on where and how a query runs", "Use the columns of the stream and _ts only."),
    )
)
"""Why a function's result may differ when it is computed again, and what to do about it."""
_WITHOUT_PARENTHESES = frozenset({
    "CURRENT_CATALOG", "CURRENT_DATABASE", "CURRENT_DATE", "CURRENT_SCHEMA", "CURRENT_TIME",
    "CURRENT_TIMESTAMP", "CURRENT_USER", "LOCALTIMESTAMP", "LOCALTIME", "SESSION_USER", "USER",
})  # fmt: skip
_MOVING_DATES = frozenset({"now", "today", "tomorrow", "yesterday"})
_DATE_TYPES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_GENERATORS = frozenset({
    "EXPLODE", "EXPLODE_OUTER", "INLINE", "INLINE_OUTER", "JSON_TUPLE", "POSEXPLODE",
    "POSEXPLODE_OUTER", "STACK", "VARIANT_EXPLODE", "VARIANT_EXPLODE_OUTER",
})  # fmt: skip
_WINDOWS = {
    "WINDOW": (
        "is not supported",
        "Write the window in FROM, as in FROM S[10s SLIDE 5s], and read window_start, window_end.",
    ),
    "WINDOW_TIME": ("is not supported", "Read window_end, of a window that stands in FROM."),
    "SESSION_WINDOW": (translations.NO_SESSIONS, translations.SESSIONS),
}
"""Of Spark's, in GROUP BY: they make several tuples of one, leave some out, or look at others."""
_NOT_HERE = _WINDOWS | translations.FUNCTIONS
_RANKINGS = {
    **dict.fromkeys(
        ("CUME_DIST", "DENSE_RANK", "NTILE", "PERCENT_RANK", "RANK", "ROW_NUMBER"),
        translations.RANKING,
    ),
    **dict.fromkeys(("LAG", "LEAD", "NTH_VALUE"), translations.OVER),
}
_QUANTIFIED = frozenset({"LIKE", "ILIKE", "="})
"""What `ANY (…)` and `SOME (…)` are not aggregates after."""


CheckAggregate = Callable[[Token], ScriptError | None]
"""What is wrong with an aggregate that is called here, by the token of its name."""


def check_functions(
    script: Script, expression: Expression, columns: Set[str], aggregate: CheckAggregate
) -> None:
    """Raise if `expression` calls what it may not, or holds a subquery or a `*`.

    `columns` are the lower-case names that, standing alone, mean a column. `aggregate` is asked of
    each function that is called.
    """
    names = columns | expression.parameters
    for before, token, after, last in _windows(expression.tokens):
        error = (
            _misplaced(script, before, token)
            or _call(script, before, token, after, last, aggregate)
            or _bare(script, before, token, after, names)
        )
        if error:
            raise error
    _check_tree(script, expression)


def _windows(tokens: tuple[Token, ...]) -> Iterator[tuple[Token, Token, Token, Token]]:
    """Each token with the one before it and the two after it; beyond the ends there are empty
    tokens.
    """
    none = Token(TokenKind.END, "", tokens[0].span)
    padded = (none, *tokens, none, none)
    return zip(padded, padded[1:], padded[2:], padded[3:], strict=False)


def _misplaced(script: Script, before: Token, token: Token) -> ScriptError | None:
    """The error for a subquery, OVER, or a date such as `DATE 'today'`, if `token` starts one."""
    if token.key == "SELECT":
        return _subquery(script, token.span)
    if token.key == "OVER" and before.key == ")":
        return script.error(token.span, "OVER is not supported", translations.OVER)
    if token.kind is not TokenKind.STRING or before.key not in _DATE_TYPES:
        return None
    if token.text.strip().lower() not in _MOVING_DATES:
        return None
    return _unrepeatable(script, token.span, script.slice(token.span), _NOW)


def _call(
    script: Script,
    before: Token,
    token: Token,
    after: Token,
    last: Token,
    aggregate: CheckAggregate,
) -> ScriptError | None:
    if after.key != "(" or not token.is_name:
        return None
    name = token.text.upper()
    if name in _UNREPEATABLE or (name == "UNIX_TIMESTAMP" and last.key == ")"):
        why = _UNREPEATABLE.get(name, _NOW)
        return _unrepeatable(script, token.span, f"{token.text}()", why)
    if name in _GENERATORS:
        message = f"{token.text}() makes several rows of one tuple, which is not supported yet"
        return script.error(token.span, message, translations.FUNCTIONS["UNNEST"][1])
    if name in _NOT_HERE:
        problem, remedy = _NOT_HERE[name]
        return script.error(token.span, f"{token.text}() {problem}", remedy)
    if name in _RANKINGS:
        return script.error(token.span, f"{token.text}() is not supported", _RANKINGS[name])
    if name in ("ANY", "SOME") and before.key in _QUANTIFIED:
        return None
    return aggregate(token)


def _bare(
    script: Script, before: Token, token: Token, after: Token, names: Set[str]
) -> ScriptError | None:
    """The error for a function called without parentheses, unless the word is a column, field or
    parameter.
    """
    if token.key not in _WITHOUT_PARENTHESES or token.text.lower() in names:
        return None
    if before.key in (".", "AS") or after.key in (".", "=>"):
        return None
    return _unrepeatable(script, token.span, token.text, _UNREPEATABLE[token.key])


def _check_tree(script: Script, expression: Expression) -> None:
    """Raises for what no single word gives away. The error underlines the whole expression."""
    if expression.tree.find(exp.Query):
        raise _subquery(script, expression.span)
    if expression.tree.find(exp.Window):
        raise script.error(expression.span, "OVER is not supported", translations.OVER)
    stars = expression.tree.find_all(exp.Star)
    if any(not isinstance(star.parent, exp.Count) for star in stars):
        raise script.error(expression.span, "'*' must stand alone", "Name the columns.")


def _subquery(script: Script, span: Span) -> ScriptError:
    return script.error(
        span, "subqueries are not supported", "Make it a query of its own and read that."
    )


def _unrepeatable(script: Script, span: Span, what: str, why: tuple[str, str]) -> ScriptError:
    reason, remedy = why
    message = f"{what} {reason}, but results must be repeatable after a failure"
    return script.error(span, message, remedy)
