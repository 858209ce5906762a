"""Queries as stages in a running system: the same results as without."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from bench.systems.system import System, read_jsonl
from tests.link.support import eventually
from tests.servers.kafka import Kafka


@pytest.fixture(scope="module")
def module_system(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    running = System(
        ClusterConfig.of_sites(["room1", "room2"]), spark, tmp_path_factory.mktemp("stages")
    )
    yield running
    running.close()


@pytest.fixture
def system(module_system: System) -> Iterator[System]:
    yield module_system
    module_system.drop_all()


def write_readings(path: Path, rows: int, seed: int) -> None:
    """Rooms and values, out of order by up to 3 s, and now and then by much more."""
    draw = random.Random(seed)
    lines = ["ts,room,value"]
    for number in range(rows):
        late = 30_000_000 if draw.random() < 0.02 else draw.randrange(3_000_000)
        room = "" if draw.random() < 0.1 else f"room {draw.randrange(7)}"
        lines.append(f"{100_000_000 + number * 20_000 - late},{room},{draw.randrange(-50, 50)}")
    path.write_text("\n".join(lines) + "\n")


def by_window(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    left_out = {"_pos"}
    return sorted(tuple(str(v) for k, v in row.items() if k not in left_out) for row in rows)


STREAM = """
CREATE STREAM readings (room STRING, value BIGINT) TIMESTAMP ts LATENESS 3s
  FROM file(path = 'readings') AT room1;
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [
        "SELECT room, sum(value) AS s, count(*) AS n, avg(value) AS a, window_end AS e"
        " FROM readings[10s] GROUP BY room",
        "SELECT upper(room) AS r, max(value + 1) AS m, min(value) AS l"
        " FROM readings[9s SLIDE 2s] WHERE value % 3 <> 0 GROUP BY r HAVING count(*) > 2",
    ],
)
def test_a_stage_gives_what_a_task_gives(system: System, query: str) -> None:
    folder = system.folder / "readings"
    folder.mkdir(exist_ok=True)
    for number in range(3):
        write_readings(folder / f"{number}.csv", 700 if number else 2000, seed=number)
    status = system.run(
        STREAM
        + f"CREATE QUERY task AS {query} NO STAGE INTO jsonl(path = 'task.jsonl');"
        + f"CREATE QUERY staged AS {query} STAGE INTO jsonl(path = 'staged.jsonl');"
    )
    expected = read_jsonl(system.folder / "task.jsonl")
    found = read_jsonl(system.folder / "staged.jsonl")
    assert len(expected) > 20
    assert by_window(found) == by_window(expected)
    assert [row["_pos"] for row in found] == list(range(1, len(found) + 1))
    assert [row["_ts"] for row in found] == sorted(row["_ts"] for row in found)
    late = {one.stream: one.late for site in status.sites for one in site.sources}
    assert late["staged.stage"] == late["readings"] > 0


@pytest.mark.spark
def test_a_topic_with_partitions_live_and_its_state(system: System, kafka: Kafka) -> None:
    topic = kafka.topic(partitions=3)
    draw = random.Random(7)
    sent: list[tuple[int, int, int]] = []

    def send(first: int, last: int) -> None:
        for partition in range(3):
            rows = [(n * 10_000 + partition, draw.randrange(5), n) for n in range(first, last)]
            values = [json.dumps({"ts": ts, "k": k, "v": v}) for ts, k, v in rows]
            kafka.send(topic, values, partition)
            sent.extend(rows)

    send(0, 600)
    system.execute(
        f"CREATE STREAM r (k INT, v BIGINT) TIMESTAMP ts LATENESS 1s"
        f" FROM kafka(servers = '{kafka.servers}', topic = '{topic}') AT room1;"
        "CREATE QUERY q AS SELECT k, sum(v) AS s, count(*) AS n FROM r[1s] GROUP BY k STAGE"
        " INTO jsonl(path = 'topic.jsonl');"
    )

    def closed(count: int) -> list[tuple[int, int, int, int]]:
        """What the windows give that the first `count` of each partition close."""
        end = ((count - 1) * 10_000 - 1_000_000) // 1_000_000
        groups: dict[tuple[int, int], list[int]] = {}
        for ts, k, v in sent:
            if ts // 1_000_000 < end:
                groups.setdefault((ts // 1_000_000, k), []).append(v)
        rows = sorted(groups.items())
        return [((w + 1) * 1_000_000, k, sum(v), len(v)) for (w, k), v in rows]

    def found() -> list[tuple[int, int, int, int]]:
        path = system.folder / "topic.jsonl"
        rows = read_jsonl(path) if path.exists() else []
        return [(row["_ts"], row["k"], row["s"], row["n"]) for row in rows]

    eventually(lambda: found() == closed(600), 60)
    (shown,) = system.execute("SELECT sum(n) AS n FROM STATE q WHERE k >= 0")
    assert "as of the offsets" in shown.text
    assert int(shown.rows[0][0]) >= 3 * 600 - sum(row[3] for row in closed(600))
    send(600, 1000)
    eventually(lambda: found() == closed(1000), 60)


def state_servers() -> list[psutil.Process]:
    mine = psutil.Process().children()
    return [one for one in mine if "anabranch.stage.server" in one.cmdline()]


@pytest.mark.spark
def test_a_state_server_that_is_killed_changes_nothing(system: System) -> None:
    folder = system.folder / "readings"
    folder.mkdir(exist_ok=True)
    write_readings(folder / "0.csv", 60_000, seed=3)
    query = "SELECT room, sum(value) AS s, count(*) AS n FROM readings[10s] GROUP BY room"
    system.execute(
        STREAM
        + f"CREATE QUERY task AS {query} NO STAGE INTO jsonl(path = 'task.jsonl');"
        + f"CREATE QUERY staged AS {query} STAGE(every = '100ms')"
        " INTO jsonl(path = 'staged.jsonl');"
    )
    eventually(lambda: bool(state_servers()), 30)
    for one in state_servers():
        one.kill()
    system.wait()
    expected = read_jsonl(system.folder / "task.jsonl")
    assert by_window(read_jsonl(system.folder / "staged.jsonl")) == by_window(expected)


@pytest.mark.spark
def test_dropping_a_stage_cancels_its_spark_jobs(system: System, spark: SparkSession) -> None:
    folder = system.folder / "readings"
    folder.mkdir(exist_ok=True)
    write_readings(folder / "0.csv", 60_000, seed=3)
    system.execute(
        STREAM + "CREATE QUERY slow AS SELECT room, count(*) AS n FROM readings[10s]"
        " WHERE length(repeat(md5(CAST(value AS STRING)), 1000000)) > 5 GROUP BY room STAGE;"
    )
    tracker = spark.sparkContext.statusTracker()

    def lasting() -> set[int]:
        """Jobs that go on after their tuples must have been read."""
        before = set(tracker.getActiveJobsIds())
        time.sleep(3)
        return before & set(tracker.getActiveJobsIds())

    eventually(lambda: bool(lasting()), 60)
    assert not lasting() & set(tracker.getJobIdsForGroup(None))  # those that nobody could cancel
    dropping = threading.Thread(target=system.execute, args=("DROP QUERY slow;",))
    dropping.start()
    dropping.join(60)
    assert not dropping.is_alive()
    eventually(lambda: not tracker.getActiveJobsIds(), 30)


def write_partitions(folder: Path) -> list[tuple[int, int, int, int]]:
    """Four files, whose keys are their own by the remainder of four, out of order by up to 2 s and
    a few of them late; (file, event time, key, value) of those that are not late."""
    draw = random.Random(11)
    folder.mkdir()
    timely = []
    for number in range(4):
        lines, newest = ["ts,k,v"], 0
        for row in range(1500):
            late = 9_000_000 if draw.random() < 0.01 else draw.randrange(2_000_000)
            ts, k, v = 50_000_000 + row * 10_000 - late, number + 4 * draw.randrange(5), row
            lines.append(f"{ts},{k},{v}")
            if ts >= newest - 2_000_000:
                timely.append((number, ts, k, v))
            newest = max(newest, ts)
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
    return timely


@pytest.mark.spark
def test_a_stage_at_two_sites_gives_every_window_once(system: System) -> None:
    timely = write_partitions(system.folder / "parted")
    query = "SELECT {key} AS key, sum(v) AS s, count(*) AS n FROM r[3s SLIDE 1s] GROUP BY key"
    script = (
        "CREATE STREAM r (k INT, v BIGINT) TIMESTAMP ts LATENESS 2s"
        " FROM file(path = 'parted') AT room1;"
        f"CREATE QUERY merged AS {query.format(key='k % 3')}"
        " STAGE(partitions = 'files', every = '200ms', late = true) ON room1, room2"
        " INTO jsonl(path = 'merged.jsonl');"
        f"CREATE QUERY keyed AS {query.format(key='k')}"
        " STAGE(partitions = 'files', keyed = true) ON room1, room2"
        " INTO jsonl(path = 'keyed.jsonl');"
        "SELECT k, event_time FROM `merged.late` INTO jsonl(path = 'late.jsonl') AT room2;"
    )
    status = system.run(script, 120)
    for name, keys in (("merged", 3), ("keyed", 100)):
        groups: dict[tuple[int, int], list[int]] = {}
        for _, ts, k, v in timely:
            for end in range(ts // 1_000_000 + 1, ts // 1_000_000 + 4):
                groups.setdefault((end * 1_000_000, k % keys), []).append(v)
        rows = read_jsonl(system.folder / f"{name}.jsonl")
        found = [(row["_ts"], row["key"], row["s"], row["n"]) for row in rows]
        expected = [(*key, sum(values), len(values)) for key, values in sorted(groups.items())]
        assert sorted(found) == expected
        assert [row[0] for row in found] == sorted(row[0] for row in found)
        assert [row["_pos"] for row in rows] == list(range(1, len(rows) + 1))
    reported = {one.stream: one for site in status.sites for one in site.sources}
    late = read_jsonl(system.folder / "late.jsonl")
    assert reported["merged.stage"].late == len(late) == 6000 - len(timely) > 0
    assert (
        len({(row["k"], row["event_time"]) for row in late} & {one[2:0:-1] for one in timely}) == 0
    )
    assert {reported[f"merged.stage.{n}"].site for n in (1, 2)} == {"room1", "room2"}
    (shown,) = system.execute("SELECT count(*) AS n FROM STATE merged")
    assert "as of the offsets 0: " in shown.text
