"""A tuple on which an expression never ends costs its own query, and no other of the site."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.status.query_states import failures
from anabranch.spark.jvm import jvm
from anabranch.spark.kept.loops import abandoned
from bench.systems.system import System
from tests.link.support import eventually

LIMIT_S = 1.0
STREAM = "CREATE STREAM s (value BIGINT) FROM rate(tps = 20) AT centre;"
# Some seconds for a tuple: what nobody waits for is to end before the tests do.
BAD = """CREATE QUERY bad AS SELECT value FROM s
  WHERE concat(repeat('a', 29), value) rlike '^(.*a){12}$' AT centre;"""
GOOD = "CREATE QUERY good AS SELECT value FROM s WHERE value % 2 = 0 AT centre;"


@pytest.fixture
def limited(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    monkeypatch.setattr("anabranch.site.tasks.task.GRACE_S", 0.5)
    cluster = ClusterConfig.of_sites(["centre"])
    update = {"instance_limit_us": int(LIMIT_S * 1e6)}
    running = System(cluster.model_copy(update=update), spark, tmp_path)
    yield running
    running.drop_all()
    running.close()


def results(system: System, query: str) -> int:
    (report,) = system.coordinator.status().sites
    return max((one.position for one in report.tasks if one.name == query), default=0)


def priorities() -> set[int]:
    assert jvm.pid
    found = set()
    for thread in Path(f"/proc/{jvm.pid}/task").iterdir():
        if (thread / "comm").read_text().startswith("kept-"):
            found.add(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
    return found


def test_it_is_dropped_at_once_and_fails_by_itself_while_others_go_on(limited: System) -> None:
    limited.execute(STREAM + GOOD)
    eventually(lambda: results(limited, "good") > 3, 60)
    limited.execute(BAD)
    time.sleep(1.0)
    begun = time.monotonic()
    limited.execute("DROP QUERY bad;")
    assert time.monotonic() - begun < 6
    assert 19 in priorities()
    before = results(limited, "good")
    limited.execute(BAD)
    eventually(lambda: bool(list(failures(limited.coordinator.status()))), 30)
    (error,) = failures(limited.coordinator.status())
    assert f"ran for more than {LIMIT_S:g} s on tuples " in str(error)
    assert " of s, and was stopped" in str(error)
    eventually(lambda: results(limited, "good") > before + 3, 30)
    assert limited.coordinator.status().sites[0].state == "up"
    limited.execute("DROP QUERY bad;")
    limited.execute("CREATE QUERY third AS SELECT value + 1 AS v FROM s AT centre;")
    eventually(lambda: results(limited, "third") > 3, 30)
    eventually(lambda: abandoned.look() == 0, 120)
