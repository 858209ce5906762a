"""`anabranch sql`: statements typed at a running system, or given to it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.cli.queries.follow import follow, split
from anabranch.cli.queries.scripts import read_script
from anabranch.cli.queries.secrets import with_secret
from anabranch.cli.queries.statements import HELP, LEAVE, command_word, show_statements
from anabranch.cli.show.tables import err, out, show_answer, show_error, working
from anabranch.cli.signals import Terminated
from anabranch.coordinator.requests import Execute
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.service.state import find_coordinator
from anabranch.errors import AnabranchError, ConfigError, SiteError
from anabranch.language.source import Script

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
            found = answers(state, script, base, wait=wait)
        for answer in found:
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
                found = _interruptibly(state, script, wait=wait)
            for answer in found:
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
