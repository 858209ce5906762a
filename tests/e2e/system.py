"""A whole system in the test's process: a coordinator and sites around one Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster
from anabranch.coordinator.scripts.scripts import Answer
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.idle import failures, idle
from anabranch.coordinator.service.launch import LocalSites
from anabranch.coordinator.status.report import SystemStatus
from anabranch.language.source import Script
from anabranch.link.gate import Credentials
from anabranch.link.message import plain


class System:
    """Relative paths in scripts start from `folder`."""

    def __init__(self, cluster: Cluster, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        state = folder / "state"
        state.mkdir()
        self.coordinator = Coordinator(state, cluster, Credentials("test"))
        self.sites = LocalSites(self.coordinator, cluster.sites, spark)

    def execute(self, text: str) -> list[Answer]:
        return self.coordinator.execute(Script(text, "script.sql"), str(self.folder))

    def run(self, text: str, timeout_s: float = 60.0) -> SystemStatus:
        """Execute, wait until all is out, and return the last status; raises what failed."""
        self.execute(text)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 60.0) -> SystemStatus:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            status = self.coordinator.status()
            for error in failures(status):
                raise error
            if idle(status):
                return status
            time.sleep(0.02)
        raise AssertionError(f"not idle after {timeout_s} s: {json.dumps(plain(status), indent=1)}")

    def drop_all(self) -> None:
        known = self.coordinator.status()
        pockets = [f"DROP POCKET `{name}`;" for name in reversed(known.pockets)]
        queries = [f"DROP QUERY IF EXISTS `{name}`;" for name in reversed(list(known.reads))]
        streams = [f"DROP STREAM IF EXISTS `{name}`;" for name in known.streams]
        tables = [f"DROP TABLE `{name}`;" for name in known.tables]
        self.execute("\n".join(pockets + queries + streams + tables))

    def close(self) -> None:
        self.sites.close()
        self.coordinator.close()


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
