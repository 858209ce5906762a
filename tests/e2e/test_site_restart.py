"""A site process that reads Kafka and writes PostgreSQL and Kafka, killed again and again: its JVM,
with which it ends as abruptly, and the process itself, in turn. A spare takes its place.

Once by default, since each start of Spark takes a while; `make soak` kills ten times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from anabranch.api.cluster import Cluster
from anabranch.api.relations import Stream
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.requests import AskStatus
from anabranch.coordinator.service.state import find_coordinator
from bench.systems.postgres import Postgres
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until
from tests.servers.kafka import Kafka

KILLS = int(os.environ.get("ANABRANCH_KILLS", "1"))
PER_S = 400
WINDOW_US = 2_000_000


class Feed:
    """Records to two partitions, from a thread, until told to stop. Event times never stand still
    for long: a kill must hit open windows."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self._stop = threading.Event()
        self._send: Callable[[list[str], int], None] = lambda values, partition: kafka.send(
            topic, values, partition=partition
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        rng, number = random.Random(3), 0
        while not self._stop.is_set():
            rows = []
            for _ in range(PER_S // 10):
                number += 1
                ts = time.time_ns() // 1000
                key, n = rng.randrange(20), rng.randrange(1000)
                rows.append({"id": number, "key": key, "n": n, "ts": ts})
            for partition in (0, 1):
                mine = [json.dumps(row) for row in rows if row["id"] % 2 == partition]
                self._send(mine, partition)
            self.sent += rows
            time.sleep(0.1)


class Program:
    """Pushes numbers from 1 on, some at a time, from a thread, until told to stop."""

    def __init__(self, folder: Path) -> None:
        self.pushed = 0
        self.error: Exception | None = None
        self._cluster = Cluster.connect(folder / ".anabranch")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        stream = self._cluster["pushed"]
        assert isinstance(stream, Stream)
        try:
            while not self._stop.wait(0.01):
                stream.push([(n,) for n in range(self.pushed + 1, self.pushed + 8)])
                self.pushed += 7
        except Exception as error:
            self.error = error

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        self._cluster.close()


SCRIPT = """
CREATE STREAM readings (id BIGINT, key INT, n BIGINT) TIMESTAMP ts LATENESS 3s
  FROM kafka(servers = '{servers}', topic = '{source}') AT edge;
CREATE QUERY odd AS SELECT id, n FROM readings WHERE n % 2 = 1
  INTO kafka(servers = '{servers}', topic = '{results}') AT edge;
CREATE QUERY sums AS SELECT key, SUM(n) AS s, COUNT(*) AS c, window_start
  FROM readings[4s SLIDE 2s] GROUP BY key
  INTO postgres(url = '{url}', table = 'sums') AT edge;
CREATE STREAM pushed (n BIGINT) AT edge;
CREATE QUERY pushes AS SELECT n FROM pushed INTO postgres(url = '{url}', table = 'pushes') AT edge;
CREATE QUERY pairs AS SELECT a.id AS a, b.id AS b FROM readings[1s] a, readings[1s] b
  WHERE a.key = b.key AND a.n = b.n AND a.id < b.id
  INTO postgres(url = '{url}', table = 'pairs') AT edge;
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_site_killed_at_random_loses_and_repeats_nothing(
    tmp_path: Path, kafka: Kafka, postgres: Postgres
) -> None:
    source, results = kafka.topic(partitions=2), kafka.topic()
    cluster = '[cluster]\nspares = 1\n[site.edge]\nisolation = "process"\n'
    (tmp_path / "cluster.toml").write_text(cluster)
    names = {"servers": kafka.servers, "source": source, "results": results, "url": postgres.url}
    (tmp_path / "script.sql").write_text(SCRIPT.format(**names))
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    processes: list[psutil.Process] = []
    feed: Feed | None = None
    program: Program | None = None
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        done = anabranch("sql", "-f", "script.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        feed = Feed(kafka, source)
        program = Program(tmp_path)
        wait_until(lambda: has_spare(up.pid), "a spare", 120)
        rng, reached = random.Random(7), 0
        for number in range(KILLS):
            wait_until(lambda: read(tmp_path) > reached, "the site goes on", 120)  # noqa: B023
            time.sleep(rng.uniform(0.0, 2.0))
            reached = read(tmp_path)
            processes += family(up.pid)
            site = site_pid(tmp_path)
            os.kill(site if number % 2 else jvm_of(site), signal.SIGKILL)
        feed.finish()
        program.finish()
        assert program.error is None
        last = feed.sent[-1]["ts"]
        end = json.dumps({"id": -1, "key": -1, "n": 0, "ts": last + 60_000_000})
        for partition in (0, 1):
            kafka.send(source, [end], partition=partition)
        check(feed.sent, kafka, results, postgres)
        check_pushes(program.pushed, postgres)
        assert KILLS > 1 or "spare" in psutil.Process(site_pid(tmp_path)).cmdline()
        assert "site edge is up" in (tmp_path / ".anabranch" / "edge.log").read_text()
        processes += family(up.pid)
    finally:
        if feed:
            feed.finish()
        if program:
            program.finish()
        up.send_signal(signal.SIGINT)
        up.wait(60)
    assert all_gone(processes) == []


def status(folder: Path) -> SystemStatus:
    coordinator = find_coordinator(folder / ".anabranch")
    try:
        return coordinator.send(AskStatus())
    finally:
        coordinator.close()


def read(folder: Path) -> int:
    """How many records have become tuples."""
    return sum(one.rows for site in status(folder).sites for one in site.sources)


def has_spare(up: int) -> bool:
    """It is there, whether or not its Spark is up: it hears of its site when that is."""
    return any("spare" in one.cmdline() for one in psutil.Process(up).children())


def site_pid(folder: Path) -> int:
    (site,) = status(folder).sites
    return int(site.pid)


def jvm_of(site: int) -> int:
    (jvm,) = [one.pid for one in psutil.Process(site).children() if one.name() == "java"]
    return int(jvm)


def check(sent: list[dict[str, Any]], kafka: Kafka, results: str, postgres: Postgres) -> None:
    """Whole contents of the sinks against what the records say."""
    odd = sorted((row["id"], row["n"]) for row in sent if row["n"] % 2)
    wait_until(lambda: len(kafka.records(results)) >= len(odd), "all odd ones", 90)
    records = [json.loads(record.value()) for record in kafka.records(results)]
    assert [record["_pos"] for record in records] == list(range(1, len(records) + 1))
    assert sorted((record["id"], record["n"]) for record in records) == odd

    sums = expected_sums(sent)
    query = "SELECT extract(epoch FROM window_start)::float8, key, s, c FROM sums WHERE key >= 0"
    wait_until(lambda: len(postgres.execute(query)) >= len(sums), "all sums", 90)
    found = {(round(start * 1e6), key): (int(s), c) for start, key, s, c in postgres.execute(query)}
    assert found == sums
    assert len(postgres.execute(query)) == len(sums)

    pairs = expected_pairs(sent)
    query = "SELECT a, b FROM pairs WHERE a > 0"
    wait_until(lambda: len(postgres.execute(query)) >= len(pairs), "all pairs", 90)
    assert sorted(postgres.execute(query)) == pairs


def check_pushes(last: int, postgres: Postgres) -> None:
    query = "SELECT _pos, n FROM pushes ORDER BY _pos"
    wait_until(lambda: len(postgres.execute(query)) >= last, "all that was pushed", 90)
    assert postgres.execute(query) == [(n, n) for n in range(1, last + 1)]


def expected_sums(sent: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for row in sent:
        k = row["ts"] // WINDOW_US
        for begin in ((k - 1) * WINDOW_US, k * WINDOW_US):
            s, c = sums.get((begin, row["key"]), (0, 0))
            sums[begin, row["key"]] = (s + row["n"], c + 1)
    return sums


def expected_pairs(sent: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Every tuple is an instant: a pair is there once the later one is, if the windows overlap."""
    by_value: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in sent:
        by_value.setdefault((row["key"], row["n"]), []).append(row)
    return sorted(
        (a["id"], b["id"])
        for rows in by_value.values()
        for a in rows
        for b in rows
        if a["id"] < b["id"] and abs(a["ts"] - b["ts"]) < 1_000_000
    )
