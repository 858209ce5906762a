"""Systems to measure and to test: statements go in, status and results come out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.temporary import TemporarySystem
from anabranch.coordinator.status.query_states import failures, idle
from anabranch.errors import TaskError
from anabranch.language.source import Script
from anabranch.link.messages import Ack, Acks, Follow
from anabranch.link.wire import BORN
from anabranch.site.tasks.task import Task
from anabranch.stream.batch import Batch

Progress = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]
"""Takes what is measured as soon as it is."""
Status = SystemStatus
READER = "bench"
LOOK_S = 0.02


class Console:
    """What can be done with every system that runs, whoever started its sites. Relative paths in
    scripts start from `folder`."""

    coordinator: Coordinator
    folder: Path

    def execute(self, text: str) -> list[Answer]:
        return self.coordinator.execute(Script(text, "script.sql"), str(self.folder))

    def status(self) -> Status:
        return self.coordinator.status()

    def run(self, text: str, timeout_s: float = 60.0) -> Status:
        """Execute a script and wait until all is out."""
        self.execute(text)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float | None = 60.0) -> Status:
        """Returns the last status once all is out; raises what has failed."""

        def over(status: Status) -> bool:
            for error in failures(status):
                raise error
            return idle(status)

        return self.wait_for(over, "all results out", timeout_s)

    def wait_for(
        self, true: Callable[[Status], Any], what: str, timeout_s: float | None = 60.0
    ) -> Status:
        """Returns the first status of which `true` holds. Raises TaskError if none does in time."""
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        while True:
            status = self.status()
            if true(status):
                return status
            if deadline is not None and time.monotonic() >= deadline:
                raise TaskError(f"{what}: not within {timeout_s:g} s", remedy=account(status))
            time.sleep(LOOK_S)

    def wait_until_up(self, timeout_s: float = 120.0) -> None:
        """All sites are up, those that were killed included."""
        self.wait_for(
            lambda status: all(site.state == "up" for site in status.sites),
            "all sites up",
            timeout_s,
        )

    def drop_all(self) -> None:
        """Readers go before what they read."""
        status = self.status()
        pockets = [f"DROP POCKET IF EXISTS `{name}`;" for name in reversed(list(status.pockets))]
        queries = [f"DROP QUERY IF EXISTS `{name}`;" for name in reversed(list(status.reads))]
        streams = [f"DROP STREAM IF EXISTS `{name}`;" for name in status.streams]
        tables = [f"DROP TABLE IF EXISTS `{name}`;" for name in status.tables]
        self.execute("\n".join(pockets + queries + streams + tables))


class System(Console, TemporarySystem):
    """A system that this process starts. Its sites share `spark`, or have processes, as the
    cluster says."""

    def __init__(
        self,
        cluster: ClusterConfig,
        spark: SparkSession | None = None,
        folder: Path | None = None,
        progress: Progress = lambda line: None,
        *,
        revive: bool = False,
        pause_s: float = 0.0,
    ) -> None:
        """With `revive`, a site's process is started again when it has been dead for `pause_s`."""
        super().__init__(cluster, progress, revive=revive, revive_pause_s=pause_s, spark=spark)
        self.folder = folder or self.state

    def start(self, text: str, query: str) -> Results:
        """Run a script, and read the output of `query` from its first tuple on."""
        self.coordinator.execute(Script(text), str(self.folder), {query: READER})
        return Results(self.coordinator, query, next(iter(self.coordinator.cluster.sites)))

    def sink_latencies_ms(self) -> list[float]:
        """How old results were when they had reached their sinks."""
        return [age * 1e3 for task in self._sinks() for age in task.measures.latencies()]

    def forget_latencies(self) -> None:
        for task in self._sinks():
            task.measures.forget_latencies()

    def _sinks(self) -> list[Task]:
        return [task for task in self.running.tasks() if task.spec.sink] if self.running else []


class Results:
    """The output of a query, acknowledged as it is read."""

    def __init__(self, coordinator: Coordinator, query: str, site: str) -> None:
        self._query = query
        self._peer = coordinator.sites.peer(site)
        self._follow = self._peer.open(Follow(query, READER, after=0))

    def seconds(self) -> float:
        """From when the script was running until the last result was here."""
        started = time.monotonic()
        for _ in self.batches():
            pass
        return time.monotonic() - started

    def latencies_ms(self, warm_up_s: float, seconds: float) -> list[float]:
        """How old results are when they come, after a time that does not count."""
        begin = time.monotonic() + warm_up_s
        latencies: list[float] = []
        for batch in self.batches():
            if time.monotonic() > begin + seconds:
                break
            if time.monotonic() >= begin and batch.rows:
                born = batch.data.column(BORN).to_numpy()
                latencies.extend(((time.time_ns() // 1000 - born) / 1000).tolist())
        self._follow.cancel()
        return latencies

    def batches(self) -> Iterator[Batch[pa.RecordBatch]]:
        acknowledged = time.monotonic()
        for batch in self._follow:
            yield batch
            if time.monotonic() - acknowledged > 0.25:
                self._acknowledge(batch.last)
                acknowledged = time.monotonic()

    def _acknowledge(self, last: int) -> None:
        self._peer.send(Acks((Ack.of_reader(self._query, READER, last),)))


def account(status: Status) -> str:
    """What each site says it is doing, in a line."""
    return "; ".join(
        f"{site.site}: {site.state}"
        + "".join(
            f" {task.name}={task.role}/{task.state}@{task.position}"
            f"{' ' + task.error.message if task.error else ''}"
            f"{' (' + task.problem + ')' if task.problem else ''}"
            for task in site.tasks
        )
        for site in status.sites
    )


def task_states(status: Status, query: str) -> list[str]:
    """Of the primary of a task, wherever it is."""
    return [one.state for one in status.tasks() if one.name == query and one.role == "primary"]


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
