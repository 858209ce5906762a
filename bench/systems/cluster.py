"""A cluster for trying failures out: sites in this process, and others that can be killed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable

import psutil
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.config.model import YOUNG_JVM, LinkConfig
from anabranch.errors import TaskError
from bench.systems.system import Progress, Status, System


class FailingCluster(System):
    """`here` share this process and one Spark (`spark`, else one of their own), `apart` have a
    process each, which is started again when it has been dead for `pause_s`."""

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
        self.heartbeat_s = heartbeat_ms / 1e3
        sites = {name: SiteConfig(name=name, conf=YOUNG_JVM) for name in here}
        sites |= {
            name: SiteConfig(name=name, isolation="process", master=master, conf=YOUNG_JVM)
            for name in apart
        }
        cluster = ClusterConfig(
            sites=sites,
            links=tuple(links),
            heartbeat_interval_us=heartbeat_ms * 1000,
            ack_interval_us=ack_ms * 1000,
        )
        super().__init__(cluster, spark, progress=progress, revive=True, pause_s=pause_s)

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
        assert self.running
        self.running.hold(site)
        self.signal(site, signal.SIGKILL)
        shutil.rmtree(self.coordinator.site_state(site), ignore_errors=True)

    def let_go(self, site: str) -> None:
        assert self.running
        self.running.let_go(site)

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
