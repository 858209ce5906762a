"""The line editor of `anabranch sql`: history, several lines, colours, and the completion of
names, which are asked for in the background.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]

from anabranch.cli.queries.completion import KnownCall, Names, complete
from anabranch.cli.queries.statements import HELP, LEAVE, command_word
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError
from anabranch.hidden import passwords_in_script
from anabranch.language.grammar.lexer import is_complete

Execute = Callable[[str], Sequence[Answer]]
_QUESTION = "".join(
    f"SHOW {kind}; "
    for kind in ("STREAMS", "TABLES", "QUERIES", "AGGREGATES", "POCKETS", "SITES", "SECRETS")
)


class KnownNames:
    """`current` is the newest answer; while the coordinator is away it stays as it was."""

    def __init__(self, execute: Execute) -> None:
        self.current = Names()
        self._execute = execute
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="names", daemon=True)
        self._thread.start()

    def refresh(self) -> None:
        """Asks again soon."""
        self._wanted.set()

    def _run(self) -> None:
        self.current = replace(self.current, **_calls())
        while self._wanted.wait():
            self._wanted.clear()
            try:
                self.current = _with(self.current, self._execute(_QUESTION))
            except AnabranchError:
                continue


def _with(names: Names, answers: Sequence[Answer]) -> Names:
    streams, tables, queries, aggregates, pockets, sites, secrets = (
        answer.rows for answer in answers
    )
    return replace(
        names,
        streams={row[0]: column_names(row[-1]) for row in streams},
        tables={row[0]: column_names(row[-1]) for row in tables},
        queries={row[0]: column_names(row[-1]) for row in queries},
        aggregates=[row[0] for row in aggregates],
        pockets=[row[0] for row in pockets],
        sites=[row[0] for row in sites],
        secrets=[row[0] for row in secrets],
    )


def column_names(columns: str) -> list[str]:
    """The column names in `a BIGINT, b STRUCT<c: INT, d: INT>`: a and b. Commas inside a type do
    not count.
    """
    names, depth, start = [], 0, 0
    for index, char in enumerate(f"{columns},"):
        depth += (char in "(<") - (char in ")>")
        if char == "," and not depth:
            names.append(columns[start:index].split()[:1])
            start = index + 1
    return [name for words in names for name in words]


def _calls() -> dict[str, Any]:
    """All sources and sinks with their options. This imports Spark, which takes a moment."""
    from anabranch.connectors import SINKS, SOURCES, TABLES

    kinds: dict[str, Any] = {"sources": SOURCES, "table_sources": TABLES, "sinks": SINKS}
    return {
        kind: {name: _call(registry, name) for name in registry} for kind, registry in kinds.items()
    }


def _call(registry: Any, name: str) -> KnownCall:
    try:
        options = registry.find(name).options
    except AnabranchError:  # it needs a package that is not installed here
        return KnownCall()
    return KnownCall(
        {option.name: option.help for option in options},
        {option.name: option.choices for option in options if option.choices},
    )


PROMPT = "anabranch> "
CONTINUED = "       ... "
HISTORY = "sql_history"


class Prompt:
    """The prompt. `execute` runs statements; it is also asked in the background for names to
    complete.
    """

    def __init__(self, state: Path, execute: Execute) -> None:
        self._names = KnownNames(execute)
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUED,
            history=history_in(state),
            completer=_NameCompleter(self._names),
            complete_while_typing=False,
            reserve_space_for_menu=6,
            lexer=PygmentsLexer(SqlLexer),
            key_bindings=_keys(),
        )

    def read(self) -> str:
        """The text that was typed, once it is whole. Raises EOFError for Ctrl-D, and
        KeyboardInterrupt.
        """
        self._names.refresh()
        return self._session.prompt()


def is_whole(text: str) -> bool:
    """Whether Enter ends the input here, instead of beginning another line of it."""
    return not text.strip() or command_word(text) in LEAVE | HELP or is_complete(text)


def history_in(state: Path) -> History:
    """The history in a file that only its owner can read, or in memory if the folder cannot be
    written. Text with a password in it can be recalled in this session, and is not kept.
    """
    path = state / HISTORY
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return _Kept(str(path))


class _Kept(FileHistory):
    def store_string(self, string: str) -> None:
        if not passwords_in_script(string):
            super().store_string(string)


class _NameCompleter(Completer):
    def __init__(self, names: KnownNames) -> None:
        self._names = names

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        before, after = document.text_before_cursor, document.text_after_cursor
        for candidate in complete(before, after, self._names.current):
            yield Completion(candidate.text, -candidate.typed, display_meta=candidate.meaning)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
