"""The clauses of statements: which words start them, and how they are gathered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from anabranch.language.grammar import translations
from anabranch.language.grammar.lexer import TokenKind
from anabranch.language.grammar.tokens import Cursor
from anabranch.language.grammar.translations import reject_join

JOINS = frozenset(
    {
        "ANTI",
        "CROSS",
        "FULL",
        "INNER",
        "JOIN",
        "LATERAL",
        "LEFT",
        "NATURAL",
        "ON",
        "OUTER",
        "RIGHT",
        "SEMI",
        "USING",
    }
)
LATER: dict[str, str] = {}
"""Words that start what the language has no meaning for yet, and what to call it."""
ENDLESS = {
    "ORDER": "ORDER BY",
    "SORT": "SORT BY",
    "CLUSTER": "CLUSTER BY",
    "DISTRIBUTE": "DISTRIBUTE BY",
    "LIMIT": "LIMIT",
    "OFFSET": "OFFSET",
    "INTERSECT": "INTERSECT",
    "EXCEPT": "EXCEPT",
    "QUALIFY": "QUALIFY",
}
"""Words that start what only makes sense for tables, which end."""
SELDOM = frozenset({"APPROXIMATE", "KEEP", "STAGE", "NO", "NOT"})
"""Clauses that are not proposed where anything else could be meant."""
Clauses = Mapping[str, Callable[[Cursor], Any]]
"""From the keyword of a clause to the production of what follows the keyword."""
_NEED_NUMBER = frozenset({"COST", "KEEP"})
"""Words that are columns' names just as often."""
_NEEDED = dict.fromkeys(("GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"), "BY") | {"NOT": "AT"}
"""Words that start a clause only with this one behind them."""


def at_clause(cursor: Cursor, *words: str) -> str | None:
    """The word of `words` that starts a clause here, if any. Some words start one only before
    another word or a number.
    """
    first, *others = cursor.peek().key.split() or [""]
    if first not in words:
        return None
    if first in _NEED_NUMBER:
        return first if cursor.peek(1).kind is TokenKind.NUMBER else None
    needed = _NEEDED.get(first)
    return first if needed in (None, *others, cursor.peek(1).key) else None


def at_unsupported(cursor: Cursor) -> str | None:
    """The first word of the unsupported clause that starts here, if one does."""
    return at_clause(cursor, *LATER, *ENDLESS)


def accept_clause(cursor: Cursor, word: str) -> bool:
    """Passes `word`, with the BY that belongs to it."""
    if not at_clause(cursor, word):
        return False
    token = cursor.advance()
    if word in _NEEDED and token.key == word:
        cursor.advance()
    return True


def reject_unsupported(cursor: Cursor) -> None:
    """Raises if SQL has a clause that starts here but this language does not support it."""
    word, span = at_unsupported(cursor), cursor.peek().span
    if cursor.at(*JOINS):
        raise reject_join(cursor)
    if word in LATER:
        raise cursor.error(span, f"{LATER[word]} is not supported yet")
    if word in ENDLESS:
        remedy = translations.ENDLESS.get(word, "A stream has no end to wait for.")
        raise cursor.error(span, f"{ENDLESS[word]} is not supported", remedy)


class Open(NamedTuple):
    """The value of a clause, and the words that could have followed in it."""

    held: Any
    more: Sequence[str]


def take(cursor: Cursor, table: Clauses) -> dict[str, Any]:
    """The values of the clauses that come next, in any order, each clause at most once."""
    values: dict[str, Any] = {}
    while cursor.at(*table):
        keyword = cursor.advance()
        if keyword.key in values:
            raise cursor.error(keyword.span, f"{keyword.key} is given twice", "Keep one of them.")
        values[keyword.key] = table[keyword.key](cursor)
    return values


def gather(
    cursor: Cursor, table: Clauses, misplaced: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The values of the clauses up to the end of the statement, in any order, each clause at most
    once.

    `misplaced` says, for keywords that cannot stand here, where they could stand.
    """
    values = take(cursor, table)
    if not cursor.at_end():
        if word := at_clause(cursor, *(misplaced or ())):
            raise cursor.error(cursor.peek().span, (misplaced or {})[word])
        reject_unsupported(cursor)
        last = next(reversed(values.values()), None)
        more = last.more if isinstance(last, Open) else ()
        others = [word for word in table if word not in values and word not in SELDOM]
        expected = (*more, *others, ";")
        raise cursor.unexpected(expected, remedy=translations.clause(cursor.peek()))
    return {
        word: clause.held if isinstance(clause, Open) else clause for word, clause in values.items()
    }
