"""TAIL and SELECT at the prompt, in a running system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.cli.queries.sql import once
from anabranch.coordinator.service.state import write_endpoint
from anabranch.errors import ConfigError, ScriptError
from bench.systems.system import System

TICKS = """
CREATE STREAM ticks (n BIGINT) FROM rate(tps = 200, n = 'value') AT room1;
CREATE QUERY even AS SELECT n FROM ticks WHERE n % 2 = 0 AT room2;
"""


@pytest.fixture
def typed(system: System) -> Iterator[System]:
    """A system that can be found by its state folder."""
    write_endpoint(system.state, system.coordinator.address, system.credentials)
    yield system
    (system.state / "coordinator.json").unlink()


def said(system: System, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    once(system.state, text, None)
    return [line.split("  ")[-1] for line in capsys.readouterr().out.splitlines()]


def test_rows_of_a_query(typed: System, capsys: pytest.CaptureFixture[str]) -> None:
    typed.execute(TICKS)
    lines = said(typed, "SHOW TABLES; TAIL Even LIMIT 4;", capsys)[1:]
    numbers = [int(line.removeprefix("n=")) for line in lines]
    assert numbers == [numbers[0] + 2 * index for index in range(4)]
    assert len(said(typed, "TAIL ticks LIMIT 2", capsys)) == 2


def test_rows_of_a_select(typed: System, capsys: pytest.CaptureFixture[str]) -> None:
    """The query that gives them is gone afterwards, without having had a sink."""
    typed.execute(TICKS)
    lines = said(typed, "SELECT n + 1 AS odd FROM even LIMIT 3", capsys)
    assert [int(line.removeprefix("odd=")) % 2 for line in lines] == [1, 1, 1]
    assert list(typed.coordinator.status().reads) == ["even"]


def test_what_ends_is_shown_to_its_end(typed: System, capsys: pytest.CaptureFixture[str]) -> None:
    typed.execute(
        "CREATE STREAM few (n BIGINT) FROM rate(tps = 1000, rows = 5, n = 'value') AT centre;"
    )
    assert said(typed, "SELECT n FROM few", capsys) == [f"n={n}" for n in range(5)]


def test_mistakes_are_shown_in_what_was_typed(typed: System) -> None:
    typed.execute(TICKS)
    with pytest.raises(ScriptError) as caught:
        once(typed.state, "SHOW SITES; SELECT m FROM even LIMIT 3;", None)
    assert caught.value.place == "sql:1:20"
    with pytest.raises(ConfigError, match="there is no 'evn'"):
        once(typed.state, "TAIL evn", None)
