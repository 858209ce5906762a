"""Every command explains itself; what is wrong is one line and an exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.cli.main import app
from tests.cli.conftest import Ended
from tests.e2e.commands import wait_until
from tests.e2e.terminal import END, TMUX, RealTerminal

Run = Callable[..., Ended]
COMMANDS = (
    "backup",
    "check",
    "dashboard",
    "demo",
    "down",
    "explain",
    "kill",
    "move",
    "network",
    "pause",
    "prepare",
    "replan",
    "report",
    "restore",
    "resume",
    "run",
    "site",
    "sql",
    "status",
    "submit",
    "token",
    "up",
)


def test_help_lists_every_command(anabranch: Run) -> None:
    ended = anabranch("--help")
    assert ended.code == 0
    assert all(f"│ {command} " in ended.out for command in COMMANDS)


def test_every_command_is_among_those_tested_here() -> None:
    shown = [command for command in app.registered_commands if not command.hidden]
    assert {command.callback.__name__ for command in shown} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_help_text(anabranch: Run, command: str) -> None:
    ended = anabranch(command, "--help")
    assert ended.code == 0
    assert f"anabranch {command}" in ended.out
    assert not ended.err


@pytest.mark.parametrize("module", ["anabranch.cli.sites.running", "anabranch.cli.main"])
def test_what_only_asks_does_not_wait_for_what_runs_queries(module: str) -> None:
    """These take seconds to import."""
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"pyspark", "scipy", "highspy", "sqlglot", "confluent_kafka", "duckdb", "psycopg"}
    assert slow & set(done.stdout.split()) == set()


@pytest.mark.parametrize("arguments", [("nonsense",), ("run", "x.sql", "--nonsense"), ("run",)])
def test_a_wrong_command_line_says_where_help_is(anabranch: Run, arguments: tuple[str]) -> None:
    ended = anabranch(*arguments)
    assert ended.code == 2
    assert "--help" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.sql"), "missing.sql: there is no such script"),
        (("run", "damaged"), "damaged: the script cannot be read: it is a folder"),
        (("run", "latin.sql"), "latin.sql: this is no text: byte 4 is no UTF-8"),
        (("run", "a_file", "--until-idle"), "a_file: there is no statement in this script"),
        (("run", "missing.sql", "--for", "soon"), "'soon' is not a quantity"),
        (("demo", "--for", "5"), "'5' has no known unit of time"),
        (("demo", "--for", "0s"), "the fire cannot last 0 s"),
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
        (("up", "--site", "x", "--site", "x"), "--site: the site x is given twice. Give each site"),
        (("status", "--state", "died"), "(process 999999999) has died without stopping. Sites"),
        (("down", "--state", "died"), "Start it again with `anabranch up`, which takes them over"),
        (("up", "--state", "a_file"), "a_file: this is a file. Choose another folder"),
        (("status", "--state", "damaged"), "damaged/coordinator.json: this file is damaged."),
        (("status", "--state", "other"), "other/coordinator.json: this file is damaged."),
        (("status", "--state", "binary"), "binary/coordinator.json: this file is damaged."),
        (("up", "--state", "binary"), "binary/token: this is no token: it has other characters"),
        (("site", "a", "--coordinator", "h:p"), "--coordinator: 'h:p' is not an address. Write"),
        (("site", "a", "--coordinator", "h:1", "--listen", "x"), "--listen: 'x' is not an address"),
        (("site", "a", "--coordinator", "h:1", "--tls-ca", "none"), "cannot read none: No such"),
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
    (tmp_path / "latin.sql").write_bytes("-- é".encode("latin-1"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "coordinator.json").write_text("{")
    for name, data in {"other": b'{"pid": "x"}', "binary": bytes(range(128, 256))}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "coordinator.json").write_bytes(data)
        (tmp_path / name / "token").write_bytes(data)
    (tmp_path / "died").mkdir()
    (tmp_path / "died" / "coordinator.json").write_text(
        '{"address": "127.0.0.1:1", "pid": 999999999, "tls_ca": null, "token_file": null}'
    )
    ended = anabranch(*arguments)
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not ended.out


def test_an_interrupt_ends_with_130(anabranch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("anabranch.cli.sites.demo.run_demo", interrupted)
    assert anabranch("demo") == Ended(130, "", "stopped\n")


def test_an_interrupt_shows_nobodys_traceback() -> None:
    """py4j logs each that meets one of its calls."""
    code = (
        "import logging; from anabranch.cli.signals import stop_cleanly_on_signals\n"
        "stop_cleanly_on_signals()\n"
        "try: raise KeyboardInterrupt\n"
        "except KeyboardInterrupt: logging.exception('while sending command')\n"
        "logging.error('another')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "ERROR:root:another\n"


def test_names_cannot_command_the_terminal(anabranch: Run) -> None:
    """Escape sequences in names, headers and data are written out."""
    ended = anabranch("explain", "\x1b]0;owned\x1b[2J.sql")
    assert "\\x1b]0;owned\\x1b[2J.sql: there is no such script" in ended.err
    assert ended.err.replace("\n", "").isprintable()


def test_a_name_that_no_site_may_have_is_shown_in_its_place(
    anabranch: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.sql").write_text(
        "CREATE STREAM s (x INT) FROM rate(tps = 1) AT room1;\n"
        "CREATE QUERY q AS SELECT x FROM s AT `room 2`;"
    )
    ended = anabranch("run", "s.sql")
    assert ended.code == 1
    assert ended.err.startswith("error: s.sql:2:38: 'room 2' is not a site name. Start with")
    assert "^^^^^^^^" in ended.err


def test_the_version(anabranch: Run) -> None:
    ended = anabranch("--version")
    assert ended.code == 0
    assert re.fullmatch(r"anabranch \d+\.\d+\.\d+ \(Spark 4\.\d+\.\d+\)\n", ended.out)


@pytest.mark.skipif(not TMUX, reason="there is no tmux")
def test_what_takes_its_time_moves(tmp_path: Path) -> None:
    """And says how long it has taken; nothing of it is left behind."""
    code = "import time\nfrom anabranch.cli.show.tables import working\n"
    code += "with working('Starting [x] …'): time.sleep(4)\n"
    with RealTerminal([sys.executable, "-c", code], tmp_path, os.environ) as terminal:
        wait_until(lambda: any("Starting [x] … 0:00:01" in one for one in terminal.lines()), "1 s")
        early = terminal.lines()
        wait_until(lambda: any("Starting [x] … 0:00:02" in one for one in terminal.lines()), "2 s")
        assert early != terminal.lines()
        assert [line for line in terminal.lines_at_the_end(20) if line] == [END]
