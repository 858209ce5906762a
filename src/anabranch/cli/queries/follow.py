"""TAIL and SELECT at the prompt: tuples as they come, in the terminal where one types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.show.tables import err, out
from anabranch.errors import ConfigError
from anabranch.language.grammar.lexer import Kind, Token, tokenize
from anabranch.language.source import Script

_SELECT = ("SELECT", "MASTER")


@dataclass(frozen=True)
class Following:
    """What is to be shown: the stream or query `name`, or, if that is empty, the query `select`,
    which exists only for this purpose. All tuples are shown, or the next `limit`.
    """

    name: str
    select: Script
    limit: int | None


def split(script: Script) -> tuple[Script, Following | None]:
    """Splits off what is for the coordinator from what is to be followed then; places in the text
    stay.
    """
    statements = _statements(script)
    asked = [one for one in statements if one[0].key in ("TAIL", *_SELECT)]
    if not asked:
        return script, None
    first = asked[0]
    if first is not statements[-1]:
        message = f"{first[0].key} goes on until Ctrl-C, so nothing can come after it"
        raise script.error(first[0].span, message, "Put it last.")
    end = first[-1].span.end
    before = Script(script.text[: first[0].span.start], script.name)
    if first[0].key == "TAIL":
        return before, _tail(script, first)
    return before, _select(script, first, end)


def _statements(script: Script) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokenize(script):
        if token.key == ";":
            found.append([])
        elif token.kind is not Kind.END:
            found[-1].append(token)
    return [one for one in found if one]


def _tail(script: Script, tokens: Sequence[Token]) -> Following:
    """TAIL name [LIMIT n]"""
    rest, limit = _limit(tokens)
    if len(rest) != 2 or not rest[1].is_name:
        span = tokens[0].span.to(tokens[-1].span)
        raise script.error(span, "this is no TAIL", "Write TAIL name, or TAIL name LIMIT 10.")
    return Following(rest[1].text, Script(""), limit)


def _select(script: Script, tokens: Sequence[Token], end: int) -> Following:
    into = next((token for token in tokens if token.key == "INTO"), None)
    if into:
        raise script.error(
            into.span,
            "a query that writes somewhere needs a name",
            "Write CREATE QUERY name AS SELECT …, or leave INTO out to see its tuples here.",
        )
    rest, limit = _limit(tokens)
    start, stop = tokens[0].span.start, rest[-1].span.end
    text = script.text
    blank = "".join(char if char == "\n" else " " for char in text[:start])
    return Following("", Script(blank + text[start : stop if limit else end], script.name), limit)


def _limit(tokens: Sequence[Token]) -> tuple[Sequence[Token], int | None]:
    """The tokens without `LIMIT n` at their end, and its n."""
    if len(tokens) > 3 and tokens[-2].key == "LIMIT" and tokens[-1].text.isdigit():
        return tokens[:-2], int(tokens[-1].text)
    return tokens, None


def follow(state: Path, asked: Following, base: Path, *, wait: bool = True) -> None:
    """Shows tuples until there are enough, the stream ends, or Ctrl-C is typed. `wait` says how
    long to wait for sites that are being started.
    """
    from anabranch.api.client import Client
    from anabranch.api.queries import Query
    from anabranch.connectors.console import tuple_line
    from anabranch.coordinator.service.state import endpoint_in

    client = Client(*endpoint_in(state))
    try:
        if asked.name:
            found = client.find(asked.name)
            if found.kind == "table":
                raise ConfigError(
                    f"{found.name} is a table", remedy="Only streams can be followed."
                )
            query = Query.joined(client, found.name, found.site)
        else:
            query = Query.selected(client, asked.select, str(base), wait=wait)
        shown = 0
        try:
            for row in query.rows(limit=asked.limit):
                shown += 1
                out.print(tuple_line(asked.name or "", row), markup=False)
            if asked.limit is None or shown < asked.limit:
                err.print(f"{asked.name or 'the stream'} has ended", markup=False)
        finally:
            query.close() if asked.name else query.drop()
    finally:
        client.close()
