"""A cluster for trying failures out: sites in this process, and others that can be killed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.config.model import LinkConfig
from anabranch.config.presets import YOUNG_JVM
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.launch import RunningCluster
from anabranch.coordinator.status.report import SystemStatus
from anabranch.errors import TaskError
from anabranch.language.source import Script
from anabranch.link.gate import Credentials
from anabranch.scratch import scratch_folder

Progress = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]
"""Takes what is measured as soon as it is."""
Status = SystemStatus
LOOK_S = 0.05


class FailingCluster:
    """`here` share this process and one Spark (`spark`, else one of their own), `apart` have a
    process each, which is started again when it has been dead for `pause_s`. Relative paths in
    scripts start from `folder`."""

    def __init__(
        self,
        here: Iterable[str],
        apart: Iterable[str],
        progress: Progress,
        *,
        heartbeat_ms: int = 250,
        ack_ms: int = 250,
        links: Iterable[LinkConfig] = (),
        pause_s: float = 0.0,
        spark: SparkSession | None = None,
        master: str = "local[1]",
    ) -> None:
        """`master`: of those that are apart."""
        self.folder = scratch_folder()
        self.heartbeat_s = heartbeat_ms / 1e3
        sites = {name: SiteConfig(name=name, conf=YOUNG_JVM) for name in here}
        sites |= {
            name: SiteConfig(name=name, isolation="process", master=master, conf=YOUNG_JVM)
            for name in apart
        }
        cluster = Cluster(
            sites=sites,
            links=tuple(links),
            heartbeat_interval_us=heartbeat_ms * 1000,
            ack_interval_us=ack_ms * 1000,
        )
        self.coordinator = Coordinator(self.folder, cluster, Credentials("bench"))
        self._running: RunningCluster | None = None
        try:
            self._running = RunningCluster(
                self.coordinator,
                self.folder,
                progress,
                tied=True,
                revive=True,
                revive_pause_s=pause_s,
                spark=spark,
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> FailingCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._running:
            self._running.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, text: str) -> None:
        self.coordinator.execute(Script(text), str(self.folder))

    def status(self) -> Status:
        return self.coordinator.status()

    def drop_all(self) -> None:
        status = self.status()
        queries = [f"DROP QUERY IF EXISTS `{name}`;" for name in reversed(list(status.reads))]
        streams = [f"DROP STREAM IF EXISTS `{name}`;" for name in status.streams]
        self.execute("\n".join(queries + streams))

    def wait(self, true: Callable[[Status], bool], what: str, timeout_s: float = 60.0) -> Status:
        """Raises TaskError if it does not come true in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            status = self.status()
            if true(status):
                return status
            time.sleep(LOOK_S)
        raise TaskError(f"{what}: not within {timeout_s:g} s", remedy=account(status))

    def wait_until_up(self) -> None:
        """All sites, those that were killed included."""
        self.wait(lambda s: all(one.state == "up" for one in s.sites), "all sites up", 120)

    def protected(self, status: Status) -> bool:
        """Every query that asks for it has a standby that could take over now."""
        found = status.protection.values()
        return bool(found) and all(one.protected for one in found)

    def signal(self, site: str, number: signal.Signals) -> None:
        """SIGKILL, SIGSTOP, SIGCONT to all that a site consists of, as if its machine failed: a JVM
        left alone would first tidy up, and take from the others what they need to recover."""
        os.killpg(self._pid(site), number)

    def lose(self, site: str) -> None:
        """For good, with all that it kept, until it is let go."""
        assert self._running
        self._running.hold(site)
        self.signal(site, signal.SIGKILL)
        shutil.rmtree(self.coordinator.site_state(site), ignore_errors=True)

    def let_go(self, site: str) -> None:
        assert self._running
        self._running.let_go(site)

    def kill_jvm(self, site: str) -> None:
        """Only that, as a system short of memory does."""
        for child in psutil.Process(self._pid(site)).children():
            if child.name() == "java":
                child.kill()

    def _pid(self, site: str) -> int:
        record = self.coordinator.sites.record(site)
        if record is None or record.pid == os.getpid():
            raise TaskError(f"site {site} has no process of its own")
        return record.pid


def task_states(status: Status, query: str) -> list[str]:
    """Of the primary of a task, wherever it is."""
    return [one.state for one in status.tasks() if one.name == query and one.role == "primary"]


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


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
