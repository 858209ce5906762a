"""Several streams as one, in a running system."""

from __future__ import annotations

import pytest

from bench.systems.system import System, read_jsonl


@pytest.mark.spark
def test_streams_of_two_sites_in_the_order_of_their_times(system: System) -> None:
    system.run(
        "".join(
            f"CREATE STREAM {name} (n BIGINT) FROM rate(tps = 1000, rows = 200,"
            f" start = '2026-01-31T12:00:00Z', n = 'value * 2 + {add}') AT {site};"
            for name, add, site in (("a", 0, "room1"), ("b", 1, "room2"))
        )
        + "CREATE QUERY u AS SELECT * FROM a UNION ALL SELECT * FROM b"
        " INTO jsonl(path = 'union.jsonl') AT centre;"
    )
    found = read_jsonl(system.folder / "union.jsonl")
    assert [row["n"] for row in found] == list(range(400))
    assert [row["_pos"] for row in found] == list(range(1, 401))
