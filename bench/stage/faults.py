"""Stages that things happen to under load: is a window lost, doubled or wrong?

Every run is one query over Parquet files, out of order and with late tuples. Its whole output,
order and positions included, is compared with a batch recomputation of the same files.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import pyarrow as pa

from anabranch.coordinator.status.query_states import failures
from anabranch.errors import TaskError
from bench.stage.fault_input import differences, recomputed, write_input
from bench.systems.cluster import FailingCluster
from bench.systems.postgres import Postgres
from bench.systems.system import Keep, Progress, Status, read_lines, task_states

SCRIPT = """
CREATE STREAM r (key BIGINT, value BIGINT, x DOUBLE) TIMESTAMP ts LATENESS 200ms
  FROM file(path = '{input}') AT {home};
CREATE QUERY q AS SELECT {key} AS k, sum(value) AS s, count(*) AS n, avg(x) AS a FROM r[1s]
  GROUP BY k STAGE{stage} INTO jsonl(path = 'out.jsonl') ON desk AT desk;
"""
FEW, MANY = "key", "key * 2000 + value"
"""What is grouped by."""


@dataclass(frozen=True)
class Kind:
    """A failure, and the query that it happens to. Those with the same `sites` and `master` run in
    one cluster; several sites read files side by side, each a partition."""

    name: str
    sites: tuple[str, ...] = ("centre",)
    stage: str = ""
    key: str = FEW
    master: str = "local[1]"
    database: bool = False


SEVERAL = "(partitions = 'files', lost = '2s', every = '300ms'{}) ON centre, other"
KINDS = (
    Kind("task"),
    Kind("server"),
    Kind("site"),
    Kind("spill", stage="(memory = '100MB', every = '1h')", key=MANY),
    Kind("executor", master="local-cluster[2,1,1024]"),
    Kind("lost", ("centre", "other"), SEVERAL.format("")),
    Kind("restarted", ("centre", "other"), SEVERAL.format(", backup = '{url}'"), database=True),
    Kind("away", ("centre", "other"), SEVERAL.format(", backup = '{url}'"), database=True),
)
MEANS = {
    "task": "a Python worker of Spark killed",
    "server": "the state server killed",
    "site": "the site killed, and started again",
    "spill": "more state than memory, and the state server killed",
    "executor": "an executor of Spark killed",
    "lost": "one of two sites lost for good, with its disk",
    "restarted": "PostgreSQL restarted under two sites",
    "away": "PostgreSQL away for a while under two sites",
}


def run(
    progress: Progress,
    keep: Keep,
    *,
    each: int = 10,
    seed: int = 1,
    files: int = 40,
    rows: int = 200_000,
    keys: int = 2_000,
    kinds: tuple[str, ...] = tuple(MEANS),
) -> dict[str, Any]:
    """Each kind of failure `each` times, at random moments."""
    draw = random.Random(seed)
    wanted = [kind for kind in KINDS if kind.name in kinds]
    runs: list[dict[str, Any]] = []
    for sites, master in dict.fromkeys((kind.sites, kind.master) for kind in wanted):
        here = [kind for kind in wanted if (kind.sites, kind.master) == (sites, master)]
        with ExitStack() as stack:
            cluster = stack.enter_context(FailingCluster(["desk"], sites, progress, master=master))
            cluster.wait_until_up()
            database = _database(stack) if any(kind.database for kind in here) else None
            several = len(sites) > 1
            many = (4, files * rows // 4) if several else (files, rows)
            tuples = write_input(cluster.folder / "input", *many, keys, seed, side_by_side=several)
            partitions = tuples if several else [pa.concat_tables(tuples)]
            progress("recomputing what is to come out …")
            expected = {key: recomputed(partitions, key) for key in {one.key for one in here}}
            for number, kind in enumerate(here * each):
                progress(f"{number + 1} of {len(here) * each}: {MEANS[kind.name]} …")
                runs.append(_Run(cluster, kind, database, draw).measure(expected[kind.key]))
                keep(runs[-1])
    return {"runs": runs, "wrong": sum(bool(one["difference"]) for one in runs)}


def _database(stack: ExitStack) -> Postgres:
    database = Postgres()
    stack.callback(database.remove)
    database.start()
    return database


class _Run:
    def __init__(
        self, cluster: FailingCluster, kind: Kind, database: Postgres | None, draw: random.Random
    ) -> None:
        self._cluster = cluster
        self._kind = kind
        self._database = database
        self._draw = draw

    def measure(self, expected: list[tuple[Any, ...]]) -> dict[str, Any]:
        cluster, kind = self._cluster, self._kind
        at_s = self._draw.uniform(0.1, 2.5)
        stage = kind.stage.format(url=self._database.url if self._database else "")
        cluster.execute(SCRIPT.format(input="input", home=kind.sites[0], stage=stage, key=kind.key))
        begun = time.monotonic()
        cluster.wait_for(lambda status: _rows(status) > 0, "the stage has begun", 120)
        time.sleep(at_s)
        at_rows = _rows(cluster.status())
        spilt = self._spilt() if kind.name == "spill" else None
        happened = self._fail()
        cluster.wait_for(_done, "all results", 300)
        took = time.monotonic() - begun
        found = [json.loads(line) for line in read_lines(cluster.folder / "out.jsonl")]
        for site in kind.sites:
            cluster.let_go(site)
        cluster.drop_all()
        cluster.wait_until_up()
        made = {
            "kind": kind.name,
            "at_s": at_s,
            "at_rows": at_rows,
            "happened": happened,
            "took_s": took,
            "results": len(found),
            "difference": differences(found, expected),
        }
        return made | ({"spilt_bytes": spilt} if spilt is not None else {})

    def _fail(self) -> str:
        """What was done, in a few words."""
        match self._kind.name:
            case "site":
                self._cluster.signal("centre", signal.SIGKILL)
                return "centre killed"
            case "lost":
                site = self._draw.choice(self._kind.sites)
                self._cluster.lose(site)
                return f"{site} lost"
            case "restarted" | "away" as how:
                assert self._database
                away_s = self._draw.uniform(2, 6) if how == "away" else 0.0
                self._database.stop()
                time.sleep(away_s)
                self._database.start()
                return f"away for {away_s:.1f} s"
        named = {"task": "", "executor": "CoarseGrainedExecutorBackend"}
        word = named.get(self._kind.name, "anabranch.stage.server")
        found = list(_processes(self._cluster, "centre", word))
        for process in found[:1]:
            process.kill()
        if word and not found:
            raise TaskError(f"there is no process of {word} to be killed")
        return f"{len(found[:1])} killed"

    def _spilt(self) -> int:
        """Waits until something is on the disk that was to be in memory; how much."""
        folder = self._cluster.coordinator.site_state("centre")

        def bytes_there() -> int:
            with suppress(OSError):  # files come and go
                return sum(one.stat().st_size for one in folder.glob("*.state/spill/*"))
            return 0

        deadline = time.monotonic() + 60
        while (
            not bytes_there() and time.monotonic() < deadline and not _done(self._cluster.status())
        ):
            time.sleep(0.05)
        return bytes_there()


def _done(status: Status) -> bool:
    for error in failures(status):
        raise error
    return task_states(status, "q/sink") == ["done"]


def _rows(status: Status) -> int:
    return max((one.stage.rows or 0 for one in status.sources() if one.stage), default=0)


def _processes(cluster: FailingCluster, site: str, word: str) -> Iterator[psutil.Process]:
    """Those of the site with `word` in their command; without it Spark's Python workers there."""
    record = cluster.coordinator.sites.record(site)
    assert record is not None
    for process in psutil.Process(record.pid).children(recursive=True):
        with suppress(psutil.Error):  # one that is gone by now
            command, parent = _command(process), process.parent()
            worker = "pyspark.daemon" in command and "pyspark.daemon" in _command(parent)
            if (word in command) if word else worker:
                yield process


def _command(process: psutil.Process | None) -> str:
    return " ".join(process.cmdline()) if process else ""
