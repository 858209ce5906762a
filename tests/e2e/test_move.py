"""A query moves to another site while tuples pass: nothing is lost, repeated or out of order."""

from __future__ import annotations

import time
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from bench.systems.system import System, read_jsonl

TPS, ROWS = 1_000, 6_000
SOURCE = f"""
CREATE STREAM ticks (n BIGINT) FROM rate(tps = {TPS}, rows = {ROWS}, start = 0, n = 'value')
  AT room1;
"""
SELECTION = "SELECT n, n * 2 AS m FROM ticks WHERE n % 3 <> 0"
WINDOWS = "SELECT SUM(n) AS s, COUNT(*) AS c FROM ticks[100 ROWS SLIDE 10 ROWS]"


def selection() -> list[dict[str, Any]]:
    kept = [n for n in range(ROWS) if n % 3]
    return [{"n": n, "m": 2 * n, "_pos": at, "_ts": n * 1000} for at, n in enumerate(kept, start=1)]


def windows() -> list[dict[str, Any]]:
    ends = range(100, ROWS + 1, 10)
    return [
        {"s": sum(range(end - 100, end)), "c": 100, "_pos": at, "_ts": (end - 1) * 1000}
        for at, end in enumerate(ends, start=1)
    ]


def where(system: System, task: str) -> dict[str, str]:
    """Site → the role in which it runs the task."""
    sites = system.coordinator.status().sites
    return {site.site: one.role for site in sites for one in site.tasks if one.name == task}


def lines(system: System, query: str) -> int:
    path = system.folder / f"{query}.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def pass_through(system: System, query: str, rows: int) -> None:
    """Until so many more lines are in the file."""
    wanted, deadline = lines(system, query) + rows, time.monotonic() + 30
    while lines(system, query) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [("some", SELECTION, selection), ("sums", WINDOWS, windows)],
)
def test_there_and_back_under_load(system: System, name: str, query: str, expected: Any) -> None:
    system.execute(
        f"{SOURCE} CREATE QUERY {name} AS {query} INTO jsonl(path = '{name}.jsonl') AT room2;"
    )
    pass_through(system, name, 20)
    assert system.coordinator.move(name.upper(), "centre") == "room2"
    assert where(system, name) == {"centre": "primary"}
    pass_through(system, name, 20)
    assert system.coordinator.move(name, "room2") == "centre"
    assert where(system, name) == {"room2": "primary"}
    assert where(system, f"{name}/sink") == {"room2": "primary"}
    assert lines(system, name) < len(expected())
    system.wait()
    assert read_jsonl(system.folder / f"{name}.jsonl") == expected()


@pytest.mark.spark
def test_a_protected_query_is_protected_anew(system: System) -> None:
    system.execute(
        f"""{SOURCE} CREATE QUERY safe AS {SELECTION}
        STANDBY ON centre BATCH 50 INTO jsonl(path = 'safe.jsonl') ON room1 AT room2;"""
    )
    pass_through(system, "safe", 20)
    system.coordinator.move("safe", "room1")
    assert where(system, "safe")["room1"] == "primary"
    deadline = time.monotonic() + 20
    while where(system, "safe") != {"room1": "primary", "centre": "standby"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    system.coordinator.move("safe", "centre")  # where its standby is
    assert where(system, "safe")["centre"] == "primary"
    system.wait()
    assert read_jsonl(system.folder / "safe.jsonl") == selection()


@pytest.mark.spark
def test_created_again_it_is_read_where_it_is_then(system: System) -> None:
    text = f"CREATE QUERY again AS {SELECTION} INTO jsonl(path = 'again.jsonl') ON room1 AT room2;"
    system.execute(SOURCE + text)
    system.coordinator.move("again", "centre")
    system.execute("DROP QUERY again; DROP STREAM ticks;")
    system.run(SOURCE + text, timeout_s=60)
    assert read_jsonl(system.folder / "again.jsonl") == selection()


@pytest.mark.spark
def test_what_does_not_move(system: System) -> None:
    system.execute(f"{SOURCE} CREATE QUERY q AS {SELECTION} AT room2;")
    for query, site, message in (
        ("p", "centre", "unknown query 'p'. Queries: q."),
        ("ticks", "centre", "ticks is a stream. Only queries move."),
        ("q", "center", "unknown site 'center'. Did you mean 'centre'?"),
        ("q", "room2", "query q is at room2 already"),
    ):
        with pytest.raises(AnabranchError) as error:
            system.coordinator.move(query, site)
        assert error.value.line() == message
    assert where(system, "q") == {"room2": "primary"}
