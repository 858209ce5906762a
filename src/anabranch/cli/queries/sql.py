"""`anabranch sql`: statements typed at a running system, or given to it. Tuples come to the
terminal as they are made; a secret is typed where nobody sees it.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from getpass import getpass
from pathlib import Path
from typing import Any

from anabranch.api.text import literal
from anabranch.cli.queries.scripts import read_script
from anabranch.cli.queries.statements import HELP, LEAVE, command_word, show_statements
from anabranch.cli.show.tables import err, out, show_answer, show_error, working
from anabranch.cli.signals import Terminated
from anabranch.coordinator.requests import Execute
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.service.state import find_coordinator
from anabranch.errors import AnabranchError, ConfigError, SiteError
from anabranch.language.grammar.lexer import Token, TokenKind, tokenize
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
    selects = [one for one in statements if one[0].key in ("TAIL", *_SELECT)]
    if not selects:
        return script, None
    first = selects[0]
    if first is not statements[-1]:
        message = f"{first[0].key} goes on until Ctrl-C, so nothing can come after it"
        raise script.error(first[0].span, message, "Put it last.")
    end = first[-1].span.end
    before = Script(script.text[: first[0].span.start], script.name)
    if first[0].key == "TAIL":
        return before, _tail(script, first)
    return before, _select(script, first, end)


def _statements(script: Script) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokenize(script):
        if token.key == ";":
            statements.append([])
        elif token.kind is not TokenKind.END:
            statements[-1].append(token)
    return [one for one in statements if one]


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


def follow(state: Path, wanted: Following, base: Path, *, wait: bool = True) -> None:
    """Shows tuples until there are enough, the stream ends, or Ctrl-C is typed. `wait` says how
    long to wait for sites that are being started.
    """
    from anabranch.api.client import Client
    from anabranch.api.queries import Query
    from anabranch.connectors.console import tuple_line
    from anabranch.coordinator.service.state import endpoint_in

    client = Client(*endpoint_in(state))
    try:
        if wanted.name:
            entry = client.find(wanted.name)
            if entry.kind == "table":
                raise ConfigError(
                    f"{entry.name} is a table", remedy="Only streams can be followed."
                )
            query = Query.joined(client, entry.name, entry.site)
        else:
            query = Query.selected(client, wanted.select, str(base), wait=wait)
        shown = 0
        try:
            for row in query.rows(limit=wanted.limit):
                shown += 1
                out.print(tuple_line(wanted.name or "", row), markup=False)
            if wanted.limit is None or shown < wanted.limit:
                err.print(f"{wanted.name or 'the stream'} has ended", markup=False)
        finally:
            query.close() if wanted.name else query.drop()
    finally:
        client.close()


_ALONE = re.compile(r"\s*(CREATE\s+SECRET\s+(`[^`]+`|\w+))\s*;?\s*", re.IGNORECASE)


def with_secret(script: Script) -> Script:
    """`CREATE SECRET name` completed with the secret that is typed or that stdin brings; any other
    script unchanged.
    """
    match = _ALONE.fullmatch(script.text)
    if match is None:
        return script
    if sys.stdin.isatty():
        value = getpass(f"secret {match[2]} (not shown): ")
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise ConfigError("a secret cannot be empty", place=match[1])
    return replace(script, text=f"{match[1]} AS {literal(value, 'secret')};")


EXECUTE_S = 300.0
"""Deploying a large script takes long: each site builds its part of it."""
Answers = Sequence[Answer]


def once(state: Path, execute: str | None, file: Path | None, *, wait: bool = True) -> None:
    """Runs the statements and shows their answers; all of them take effect or none does. `wait`
    says how long to wait for sites that are being started.
    """
    if execute is not None and file is not None:
        raise ConfigError("both --execute and --file are given", remedy="Give one of them.")
    if file is not None:
        run(state, read_script(file), file.resolve().parent, wait=wait)
    else:
        run(state, Script(execute or "", "sql"), Path.cwd(), wait=wait)


def interactive(state: Path, *, wait: bool = True) -> None:
    """Prompts until the user leaves; if there is no terminal, runs what stdin holds.

    Raises SiteError if nothing ever ran in `state`. A coordinator that is away now may come back.
    """
    if not sys.stdin.isatty():
        run(state, Script(sys.stdin.read(), "stdin"), Path.cwd(), wait=wait)
        return
    if not state.is_dir():
        find_coordinator(state)
    from anabranch.cli.queries.prompt import Prompt

    prompt = Prompt(state, lambda text: answers(state, Script(text, "sql"), Path.cwd()))
    _greet(state)
    while (text := _next(prompt)) is not None:
        _obey(state, text, wait=wait)


def run(state: Path, script: Script, base: Path, *, wait: bool = True) -> None:
    script, following = split(with_secret(script))
    if not following or script.text.strip():
        with working("Running …"):
            replies = answers(state, script, base, wait=wait)
        for answer in replies:
            show_answer(answer)
    if following:
        follow(state, following, base, wait=wait)


def answers(state: Path, script: Script, base: Path, *, wait: bool = True) -> Answers:
    """The coordinator's answers to `script`, whose relative paths start from `base`."""
    coordinator = find_coordinator(state)
    try:
        return coordinator.send(Execute(script.text, script.name, str(base), wait), EXECUTE_S)
    finally:
        coordinator.close()


def _greet(state: Path) -> None:
    try:
        rows = answers(state, Script("SHOW SITES;", "sql"), Path.cwd())[0].rows
        sites = [f"{name} ({there})" for name, _, there in rows]
        out.print(f"Sites: {', '.join(sites)}." if sites else "No site is up yet.")
    except AnabranchError as error:
        show_error(error)
    out.print("Statements end with ; and Tab completes them. help lists them, exit leaves.")


def _next(prompt: Any) -> str | None:
    """The next input; None to leave. Ctrl-C drops what was typed."""
    while True:
        try:
            text: str = prompt.read()
        except Terminated:
            raise
        except KeyboardInterrupt:
            continue
        except EOFError:
            return None
        return None if command_word(text) in LEAVE else text


def _obey(state: Path, text: str, *, wait: bool) -> None:
    """Does what `text` says. An error is shown, and the session goes on."""
    if command_word(text) in HELP:
        show_statements()
        return
    following = None
    try:
        script, following = split(with_secret(Script(text, "sql")))
        if not following or script.text.strip():
            with working("Running …"):
                replies = _interruptibly(state, script, wait=wait)
            for answer in replies:
                show_answer(answer)
        if following:
            follow(state, following, Path.cwd(), wait=wait)
    except AnabranchError as error:
        show_error(error)
    except Terminated:
        raise
    except KeyboardInterrupt:
        if not following:
            err.print("no longer waiting; the coordinator may still carry it out")


def _interruptibly(state: Path, script: Script, *, wait: bool) -> Answers:
    """Calls `answers` in another thread, because a call that waits for the network does not see
    Ctrl-C.
    """
    result: list[Answers | AnabranchError] = []

    def ask() -> None:
        try:
            result.append(answers(state, script, Path.cwd(), wait=wait))
        except AnabranchError as error:
            result.append(error)

    thread = threading.Thread(target=ask, name="ask", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(timeout=0.1)
    if not result:
        raise SiteError("the statement was not answered")
    if isinstance(result[0], AnabranchError):
        raise result[0]
    return result[0]
