"""KEEP of streams and queries, and SINCE and BEGINNING in FROM: what is there for those who come
later, and who reads it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from anabranch.errors import ConfigError
from anabranch.language.grammar.lexer import TokenKind
from anabranch.language.grammar.statements import KeepNode, PastNode
from anabranch.language.grammar.tokens import Cursor
from anabranch.plan.keep import Keep, Past
from anabranch.units import byte_count


def keep(cursor: Cursor) -> KeepNode:
    """KEEP (duration | size | duration size | size duration); the first word is passed already."""
    start = cursor.previous
    asked: dict[str, int] = {}
    while cursor.peek().kind is TokenKind.NUMBER or not asked:
        begin = cursor.peek()
        kind, amount = _amount(cursor)
        span = cursor.since(begin)
        if amount == 0:
            raise cursor.error(span, "KEEP keeps something", "Leave it out to keep nothing.")
        if kind in asked:
            raise cursor.error(span, "KEEP says this twice", "Give one duration and one size.")
        asked[kind] = amount
    return KeepNode(Keep(**asked), cursor.since(start))


def _amount(cursor: Cursor) -> tuple[str, int]:
    if duration := cursor.accept_duration():
        return "us", duration.us
    for count in (1, 2):
        text = "".join(cursor.peek(ahead).text for ahead in range(count))
        with suppress(ConfigError):
            size = byte_count(text)
            for _ in range(count):
                cursor.advance()
            return "bytes", size
    raise cursor.unexpected(("a duration such as 7d", "a size such as 20GB"))


_EXAMPLES = ("a time such as '2026-11-01 12:00:00'", "a duration such as 2h")


def at_past(cursor: Cursor) -> bool:
    if cursor.at("BEGINNING"):
        return True
    return cursor.at("SINCE") and cursor.peek(1).kind in (TokenKind.STRING, TokenKind.NUMBER)


def past(cursor: Cursor) -> PastNode:
    """past := BEGINNING | SINCE 'time' | SINCE duration"""
    start = cursor.advance()
    if start.key == "BEGINNING":
        return PastNode(Past(text="BEGINNING"), start.span)
    if cursor.peek().kind is TokenKind.STRING:
        since_us = _time(cursor)
        text = cursor.script.slice(cursor.since(start))
        return PastNode(Past(since_us=since_us, text=text), cursor.since(start))
    back = cursor.duration()
    return PastNode(Past(back_us=back.us, text=f"SINCE {back.text}"), cursor.since(start))


def _time(cursor: Cursor) -> int:
    token = cursor.advance()
    try:
        time = datetime.fromisoformat(token.text.strip())
    except ValueError:
        raise cursor.unexpected(_EXAMPLES, token) from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
