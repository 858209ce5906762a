"""The line editor of `anabranch sql`: history, completion, several lines, colours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]

from anabranch.cli.queries.completion import complete
from anabranch.cli.queries.names import Execute, KnownNames
from anabranch.cli.queries.statements import HELP, LEAVE, command_word
from anabranch.hidden import passwords_in_script
from anabranch.language.grammar.lexer import is_complete

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
        for found in complete(before, after, self._names.current):
            yield Completion(found.text, -found.typed, display_meta=found.meaning)


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
