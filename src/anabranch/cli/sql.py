"""`anabranch sql`: statements typed at a running system, or given to it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from anabranch.cli.run import read_script
from anabranch.cli.show import err, out, show_answer, show_error
from anabranch.cli.signals import Terminated
from anabranch.cli.statements import HELP, LEAVE, command_word, show_statements
from anabranch.coordinator.state import find_coordinator
from anabranch.errors import AnabranchError, ConfigError, SiteError
from anabranch.language.lexer import tokenize
from anabranch.language.source import Script

EXECUTE_S = 300.0
"""Deploying a large script takes long: each site builds its part of it."""
Answers = list[dict[str, Any]]


def once(state: Path, execute: str | None, file: Path | None) -> None:
    """Run the statements and show their answers; all of them take effect or none does."""
    if execute is not None and file is not None:
        raise ConfigError("both --execute and --file are given", remedy="Give one of them.")
    if file is not None:
        run(state, read_script(file), file.resolve().parent)
    else:
        run(state, Script(execute or "", "sql"), Path.cwd())


def interactive(state: Path) -> None:
    """Prompt until the user leaves; without a terminal, run what stdin holds.

    Raises SiteError if nothing ever ran in `state`; a coordinator that is away now may come back.
    """
    if not sys.stdin.isatty():
        run(state, Script(sys.stdin.read(), "stdin"), Path.cwd())
        return
    if not state.is_dir():
        find_coordinator(state)
    from anabranch.cli.prompt import Prompt

    prompt = Prompt(state, lambda text: answers(state, Script(text, "sql"), Path.cwd()))
    _greet(state)
    while (text := _next(prompt)) is not None:
        _obey(state, text)


def run(state: Path, script: Script, base: Path) -> None:
    for answer in answers(state, script, base):
        show_answer(answer)


def answers(state: Path, script: Script, base: Path) -> Answers:
    """What the coordinator says to `script`, whose relative paths start from `base`."""
    reject_bare_select(script)
    coordinator = find_coordinator(state)
    try:
        found: Answers = coordinator.call(
            "execute", EXECUTE_S, text=script.text, name=script.name, base=str(base)
        )
    finally:
        coordinator.close()
    return found


def reject_bare_select(script: Script) -> None:
    """Raise ScriptError for a statement that begins with SELECT, which has nowhere to show."""
    before = ";"
    for token in tokenize(script):
        if before == ";" and token.key in ("SELECT", "MASTER"):
            raise script.error(
                token.span,
                "a SELECT runs as a query with a name",
                "Write CREATE QUERY name AS SELECT … INTO jsonl(path = '…'); or EXPLAIN SELECT …",
            )
        before = token.key


def _greet(state: Path) -> None:
    try:
        rows = answers(state, Script("SHOW SITES;", "sql"), Path.cwd())[0]["rows"]
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


def _obey(state: Path, text: str) -> None:
    """Do what `text` says. An error is shown, and the session goes on."""
    if command_word(text) in HELP:
        show_statements()
        return
    try:
        for answer in _interruptibly(state, Script(text, "sql")):
            show_answer(answer)
    except AnabranchError as error:
        show_error(error)
    except Terminated:
        raise
    except KeyboardInterrupt:
        err.print("no longer waiting; the coordinator may still carry it out")


def _interruptibly(state: Path, script: Script) -> Answers:
    """`answers` in another thread: a call that waits for the network does not see Ctrl-C."""
    result: list[Answers | AnabranchError] = []

    def ask() -> None:
        try:
            result.append(answers(state, script, Path.cwd()))
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
