"""Pockets that say they are deterministic can be taken over."""

from __future__ import annotations

import pytest

from anabranch.errors import ConfigError, ScriptError
from bench.systems.system import System, read_jsonl
from tests.e2e.test_standby import assignment, take_over
from tests.pockets.support import submit

ROWS = 3000
SOURCE = (
    f"CREATE STREAM ticks (n BIGINT) FROM rate(tps = 1000, rows = {ROWS}, n = 'value') AT room1;"
)
POCKET = """
from anabranch.pocket import Pocket

class Doubler(Pocket):
    query = "SELECT n FROM ticks WHERE n % 3 <> 0"
    output = "CREATE STREAM doubled (m BIGINT) AT centre"
    deterministic = True
    standby = "ON room2 BATCH 20"

    def row(self, row):
        return [{"m": row["n"] * 2}] * (row["n"] % 2 + 1)
"""


def test_it_is_taken_over_with_its_stream(system: System) -> None:
    system.execute(SOURCE)
    submit(system, POCKET)
    system.execute(
        "CREATE QUERY seen AS SELECT m FROM doubled INTO jsonl(path = 'm.jsonl') AT room1;"
    )
    take_over(system, "Doubler")
    assert assignment(system, "Doubler").site == "room2"
    (answer,) = system.execute("SHOW POCKETS;")
    assert answer.rows[0][:2] == ("Doubler", "room2")
    system.wait()
    rows = read_jsonl(system.folder / "m.jsonl")
    seen = [row["m"] for row in rows]
    expected = [2 * n for n in range(ROWS) if n % 3 for _ in range(n % 2 + 1)]
    assert seen == expected[-len(seen) :]  # the reader came a moment after the pocket
    assert len(seen) > ROWS / 3
    assert [row["_pos"] for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (("deterministic = True", ""), ConfigError, "it asks for a standby, which would not give"),
        (("def row(self, row)", "def process(self, row)"), ConfigError, "it asks for a standby"),
        (("ON room2", "ON nowhere"), ConfigError, "unknown site 'nowhere'"),
        (("ON room2", "ON centre"), ConfigError, "it runs at centre itself"),
        (("BATCH 20", "BATCH 0"), ScriptError, "a batch cannot have 0 tuples"),
    ],
)
def test_what_cannot_be_protected_is_refused(
    system: System, change: tuple[str, str], kind: type[Exception], message: str
) -> None:
    system.execute(SOURCE)
    with pytest.raises(kind, match=message):
        submit(system, POCKET.replace(*change))
