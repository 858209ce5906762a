"""A pocket whose site is killed goes on where it was, and so does who reads it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from anabranch import Cluster, Pocket, source
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until


class Copier(Pocket):
    query = "s"
    output = "CREATE STREAM same (n BIGINT) AT edge"

    def row(self, row: dict[str, int]) -> tuple[int]:
        return (row["n"],)


@pytest.mark.slow
def test_a_pocket_goes_on_after_its_site_was_killed(tmp_path: Path) -> None:
    sites = '[site.room1]\nisolation = "process"\n[site.edge]\nisolation = "process"\n'
    (tmp_path / "cluster.toml").write_text(sites)
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        with Cluster.connect(tmp_path / ".anabranch") as cluster:
            cluster.stream("s", {"n": "BIGINT"}, at="room1",
                           source=source("rate", tps=200, rows=2000, n="value"))  # fmt: skip
            found = []
            for row in cluster.submit(Copier).rows(timeout="120s"):
                found.append(row["n"])
                if len(found) == 300:
                    (edge,) = [one for one in cluster.status()["sites"] if one["site"] == "edge"]
                    os.kill(edge["pid"], signal.SIGKILL)
        assert found == list(range(2000))
        processes = family(up.pid)
    finally:
        anabranch("down", cwd=tmp_path)
        up.wait(60)
    assert all_gone(processes) == []
