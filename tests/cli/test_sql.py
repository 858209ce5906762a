"""Statements given to a coordinator, and typed at the prompt."""

from __future__ import annotations

import io
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from anabranch.cli.queries import prompt, sql
from anabranch.cli.queries.prompt import HISTORY, Prompt, history_in, is_whole
from anabranch.cli.queries.sql import split
from anabranch.cli.queries.statements import STATEMENTS
from anabranch.cli.signals import Terminated
from anabranch.coordinator.requests import Execute
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import ScriptError, SiteError
from anabranch.language.grammar.parser import parse
from anabranch.language.source import Script
from tests.cli.conftest import Ended, FakeCoordinator

Run = Callable[..., Ended]
NO_NAMES = [Answer("table")] * 7


def test_execute_shows_the_answers(anabranch: Run, coordinator: FakeCoordinator) -> None:
    assert anabranch("sql", "-e", "SHOW QUERIES;") == Ended(0, "ok\n", "")
    assert coordinator.asked == [Execute("SHOW QUERIES;", "sql", str(Path.cwd()))]


def test_one_need_not_wait_for_sites_that_are_starting(
    anabranch: Run, coordinator: FakeCoordinator
) -> None:
    assert anabranch("sql", "--no-wait", "-e", "SHOW QUERIES;").code == 0
    assert not coordinator.asked[0].wait


def test_nor_for_statements_from_stdin_or_at_the_prompt(
    anabranch: Run, coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SHOW QUERIES;"))
    assert anabranch("sql", "--no-wait").code == 0
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(prompt, "Prompt", lambda state, execute: Typed("SHOW STREAMS;"))
    sql.interactive(tmp_path, wait=False)
    waits = {one.text: one.wait for one in coordinator.asked}
    assert not waits["SHOW QUERIES;"]
    assert not waits["SHOW STREAMS;"]


def test_paths_of_a_script_start_from_its_folder(
    anabranch: Run, coordinator: FakeCoordinator, tmp_path: Path
) -> None:
    script = tmp_path / "some.sql"
    script.write_text("SHOW QUERIES;")
    assert anabranch("sql", "-f", str(script)).code == 0
    assert coordinator.asked[0].base == str(tmp_path)
    assert coordinator.asked[0].name == str(script)


def test_statements_are_read_from_stdin_without_a_terminal(
    anabranch: Run, coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SHOW STREAMS;\nSHOW QUERIES;\n"))
    assert anabranch("sql").out == "ok\n"
    assert coordinator.texts == ["SHOW STREAMS;\nSHOW QUERIES;\n"]


@pytest.mark.parametrize(
    ("text", "before", "following"),
    [
        ("SHOW SITES;", "SHOW SITES;", None),
        ("TAIL q;", "", ("q", "", None)),
        ("SHOW SITES; tail `my q` LIMIT 5", "SHOW SITES; ", ("my q", "", 5)),
        ("SELECT a FROM b;", "", ("", "SELECT a FROM b", None)),
        (
            "SHOW SITES;\nMASTER a SELECT b FROM a LIMIT 3;",
            "SHOW SITES;\n",
            ("", "           \nMASTER a SELECT b FROM a", 3),
        ),
        (
            "EXPLAIN SELECT a FROM b; CREATE QUERY q AS SELECT a FROM b",
            "EXPLAIN SELECT a FROM b; CREATE QUERY q AS SELECT a FROM b",
            None,
        ),
    ],
)
def test_what_is_followed(
    text: str, before: str, following: tuple[str, str, int | None] | None
) -> None:
    """Places in a SELECT are those of what was typed."""
    script, found = split(Script(text))
    assert script.text == before
    assert (found and (found.name, found.select.text, found.limit)) == following


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "TAIL q; SHOW SITES;",
            "sql:1:1: TAIL goes on until Ctrl-C, so nothing can come after it. Put it last.",
        ),
        ("TAIL;", "sql:1:1: this is no TAIL. Write TAIL name, or TAIL name LIMIT 10."),
        ("TAIL q LIMIT all", "sql:1:1: this is no TAIL. Write TAIL name, or TAIL name LIMIT 10."),
        (
            "SELECT a FROM b INTO csv(path = 'x')",
            "sql:1:17: a query that writes somewhere needs a"
            " name. Write CREATE QUERY name AS SELECT …, or leave INTO out to see its tuples here.",
        ),
    ],
)
def test_what_cannot_be_followed(
    anabranch: Run, coordinator: FakeCoordinator, text: str, line: str
) -> None:
    ended = anabranch("sql", "-e", text)
    assert ended.code == 1
    assert ended.err.startswith(f"error: {line}\n")
    assert not coordinator.asked


class Typed:
    """A prompt at which these inputs are typed, exceptions being keys; then Ctrl-D."""

    def __init__(self, *inputs: str | BaseException) -> None:
        self._inputs: Iterator[str | BaseException] = iter(inputs)

    def read(self) -> str:
        given = next(self._inputs, EOFError())
        if isinstance(given, BaseException):
            raise given
        return given


@pytest.fixture
def type_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, coordinator: FakeCoordinator
) -> Callable[..., None]:
    """A session at a terminal."""

    def session(*inputs: str | BaseException) -> None:
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr(prompt, "Prompt", lambda state, execute: Typed(*inputs))
        sql.interactive(tmp_path)

    return session


def test_a_session_goes_on_after_errors_and_interrupts(
    type_in: Callable[..., None], coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.error = SiteError("the coordinator is away")
    type_in("SHOW STREAMS;", KeyboardInterrupt(), "TAIL;", "SHOW QUERIES;")
    assert coordinator.texts == ["SHOW SITES;", "SHOW STREAMS;", "SHOW QUERIES;"]
    said = capsys.readouterr().err
    assert said.count("error: the coordinator is away") == 3
    assert "  TAIL;\n  ^^^^" in said


@pytest.mark.parametrize("word", ["exit", "quit", "\\q", "EXIT;", " quit ; "])
def test_words_that_leave(
    type_in: Callable[..., None], coordinator: FakeCoordinator, word: str
) -> None:
    type_in(word, "SHOW QUERIES;")
    assert coordinator.texts == ["SHOW SITES;"]


def test_a_signal_leaves_where_an_interrupt_does_not(type_in: Callable[..., None]) -> None:
    with pytest.raises(Terminated):
        type_in(Terminated())


def test_help_lists_every_statement(
    type_in: Callable[..., None], coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in("help")
    said = capsys.readouterr().out
    assert all(line in said for syntax, example in STATEMENTS for line in syntax.splitlines())
    assert max(map(len, said.splitlines())) <= 80
    assert coordinator.texts == ["SHOW SITES;"]


@pytest.mark.parametrize("example", [example for _, example in STATEMENTS])
def test_examples_in_the_help_are_valid(example: str) -> None:
    assert len(parse(Script(example))) == 1


def test_a_missing_state_folder_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(SiteError, match="no coordinator"):
        sql.interactive(tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("  \n", True),
        ("help", True),
        ("\\?", True),
        ("exit", True),
        ("SHOW SITES;", True),
        ("SHOW SITES; -- all of them", True),
        ("SHOW SITES", False),
        ("CREATE QUERY q AS\n", False),
        ("DESCRIBE ';", False),
        ("DESCRIBE `a;b`", False),
        ("SHOW /* ;", False),
        ("SHOW -- ;", False),
        ("exit the room", False),
    ],
)
def test_where_enter_ends_the_input(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_the_prompt_goes_on_until_the_statement_ends(tmp_path: Path) -> None:
    with (
        create_pipe_input() as keys,
        create_app_session(input=keys, output=DummyOutput()),
    ):
        keys.send_text("SHOW\rSITES;\r")
        assert Prompt(tmp_path, lambda text: NO_NAMES).read() == "SHOW\nSITES;"
    assert "SITES;" in (tmp_path / HISTORY).read_text()


def test_only_its_owner_can_read_the_history(tmp_path: Path) -> None:
    (tmp_path / HISTORY).touch(0o644)
    history_in(tmp_path)
    assert stat.S_IMODE((tmp_path / HISTORY).stat().st_mode) == 0o600


def test_without_a_folder_history_is_kept_in_memory(tmp_path: Path) -> None:
    history_in(tmp_path / "missing").append_string("SHOW SITES;")
    assert not (tmp_path / "missing").exists()


def test_an_unreadable_script_points_at_the_place(coordinator: FakeCoordinator) -> None:
    with pytest.raises(ScriptError) as raised:
        sql.once(Path("."), "DESCRIBE 'a", None)
    assert raised.value.place == "sql:1:10"
