"""A query that has too much to do holds nobody up, and can be dropped."""

from __future__ import annotations

import threading

from bench.systems.system import System
from tests.link.support import eventually

SLOW = """
CREATE STREAM a (v BIGINT) TIMESTAMP ts FROM file(path = 'a.csv') AT centre;
CREATE STREAM b (v BIGINT) TIMESTAMP ts FROM file(path = 'b.csv') AT centre;
CREATE QUERY slow AS SELECT a.v FROM a[1h], b[1h]
  WHERE length(repeat(CAST(a.v AS STRING), 300)) + b.v < 0 AT centre;
"""
OTHER = """
CREATE STREAM ticks (value BIGINT) FROM rate(tps = 100, rows = 50) AT centre;
CREATE QUERY plain AS SELECT value + 1 AS v FROM ticks INTO jsonl(path = 'plain.jsonl') AT centre;
"""


def state_of(system: System, query: str) -> tuple[str, int]:
    (found,) = [
        task
        for site in system.coordinator.status().sites
        for task in site.tasks
        if task.name == query
    ]
    return found.state, found.position


def test_others_go_on_beside_it_and_it_can_be_dropped(system: System) -> None:
    for name in "ab":
        rows = "".join(f"{n},{n}\n" for n in range(12_000))
        (system.folder / f"{name}.csv").write_text(f"v,ts\n{rows}")
    system.execute(SLOW)
    system.execute(OTHER)
    eventually(lambda: state_of(system, "plain/sink") == ("done", 50), 120)
    assert state_of(system, "slow") == ("running", 0)
    dropping = threading.Thread(target=system.execute, args=("DROP QUERY slow;",))
    dropping.start()
    dropping.join(60)
    assert not dropping.is_alive()
    assert "slow" not in system.coordinator.status().reads
