"""Every command explains itself; what is wrong is one line and an exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.cli.main import app
from tests.cli.conftest import Ended

Run = Callable[..., Ended]
COMMANDS = (
    "demo", "down", "explain", "kill", "move", "pause", "prepare", "resume", "run", "site", "sql",
    "status", "submit", "up",
)  # fmt: skip


def test_help_lists_every_command(anabranch: Run) -> None:
    ended = anabranch("--help")
    assert ended.code == 0
    assert all(f"│ {command} " in ended.out for command in COMMANDS)


def test_every_command_is_among_those_tested_here() -> None:
    assert {command.callback.__name__ for command in app.registered_commands} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_help_text(anabranch: Run, command: str) -> None:
    ended = anabranch(command, "--help")
    assert ended.code == 0
    assert f"anabranch {command}" in ended.out
    assert not ended.err


@pytest.mark.parametrize("arguments", [("nonsense",), ("run", "x.sql", "--nonsense"), ("run",)])
def test_a_wrong_command_line_says_where_help_is(anabranch: Run, arguments: tuple[str]) -> None:
    ended = anabranch(*arguments)
    assert ended.code == 2
    assert "--help" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.sql"), "missing.sql: there is no such script"),
        (("run", "missing.sql", "--for", "soon"), "'soon' is not a quantity"),
        (("demo", "--for", "5"), "'5' has no known unit of time"),
        (("demo", "--for", "0s"), "the demonstration cannot last 0 s"),
        (("demo", "--for", "9h"), "Give --for a duration from 1s to 1h."),
        (("sql", "-f", "missing.sql"), "missing.sql: there is no such script"),
        (("sql", "-f", "missing.sql", "-e", ""), "both --execute and --file are given"),
        (("sql", "-e", "SHOW SITES;"), "no coordinator has its state in"),
        (("status",), "no coordinator has its state in"),
        (("submit", "alarm.py"), "no coordinator has its state in"),
        (("explain", "missing.sql"), "missing.sql: there is no such script"),
        (("down",), "no coordinator has its state in"),
        (("kill", "centre"), "no coordinator has its state in"),
        (("move", "q", "centre"), "no coordinator has its state in"),
        (("up", "--state", "a_file"), "a_file: this is a file. Choose another folder"),
        (("status", "--state", "damaged"), "damaged/coordinator.json: this file is damaged."),
        (("site", "a", "--coordinator", "h:p"), "--coordinator: 'h:p' is not an address. Write"),
        (("site", "a", "--coordinator", "h:1", "--listen", "x"), "--listen: 'x' is not an address"),
        (("site", "a", "--coordinator", "h:1", "--tls-ca", "none"), "cannot read none: No such"),
        (("bench", "hop", "--json", "none/f"), "none: there is no such folder"),
        (("bench", "hop", "--json", "damaged"), "damaged: this file cannot be written"),
    ],
)
def test_an_error_is_one_line(
    anabranch: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "coordinator.json").write_text("{")
    ended = anabranch(*arguments)
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not ended.out


def test_an_interrupt_ends_with_130(anabranch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anabranch.cli.demo.run_demo", interrupted)
    assert anabranch("demo") == Ended(130, "", "stopped\n")
