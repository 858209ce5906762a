"""A pocket whose site is killed goes on where it was, with its state, and so does who reads it."""

from __future__ import annotations

import os
import signal
from itertools import accumulate, groupby
from pathlib import Path
from uuid import uuid4

import pytest

from anabranch import Cluster, Pocket, source
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until

ROWS = 4000


class Total(Pocket):
    query = "s"
    output = "CREATE STREAM sums (n BIGINT, sum BIGINT) AT edge"

    def open(self) -> None:
        self.sum = 0

    def row(self, row: dict[str, int]) -> tuple[int, int]:
        self.sum += row["n"]
        return row["n"], self.sum


class Dice(Pocket):
    """Gives each number as often as chance says, and says how often."""

    query = "s"
    output = "CREATE STREAM thrown (n BIGINT, times INT, throw STRING) AT edge"
    stateless = True

    def row(self, row: dict[str, int]) -> list[tuple[int, int, str]]:
        throw = uuid4().hex
        times = int(throw[0], 16) % 3
        return [(row["n"], times, throw)] * times


def check_throws(thrown: list[tuple[int, int, str]]) -> None:
    """Each throw is there whole or not at all, once, in order."""
    assert [n for n, _, _ in thrown] == sorted(n for n, _, _ in thrown)
    for n, throws in groupby(thrown, key=lambda one: one[0]):
        group = list(throws)
        assert len({throw for _, _, throw in group}) == 1, n
        assert all(times == len(group) for _, times, _ in group), n
    assert len({n for n, _, _ in thrown}) > ROWS / 2


@pytest.mark.slow
def test_a_running_total_stays_right_when_its_site_is_killed(tmp_path: Path) -> None:
    sites = '[site.room1]\nisolation = "process"\n[site.edge]\nisolation = "process"\n'
    (tmp_path / "cluster.toml").write_text(sites)
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        with Cluster.connect(tmp_path / ".anabranch") as cluster:
            cluster.stream(
                "s",
                {"n": "BIGINT"},
                at="room1",
                source=source("rate", tps=400, rows=ROWS, n="value"),
            )
            found = []
            total, dice = cluster.submit(Total), cluster.submit(Dice)
            for row in total.rows(timeout="120s"):
                found.append((row["n"], row["sum"]))
                if len(found) in (900, 2300):
                    (edge,) = [one for one in cluster.status()["sites"] if one["site"] == "edge"]
                    os.kill(edge["pid"], signal.SIGKILL)
            thrown = [(row["n"], row["times"], row["throw"]) for row in dice.rows(timeout="60s")]
        assert found == list(enumerate(accumulate(range(ROWS))))
        check_throws(thrown)
        processes = family(up.pid)
    finally:
        anabranch("down", cwd=tmp_path)
        up.wait(60)
    assert all_gone(processes) == []
