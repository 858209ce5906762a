"""A system that lives as long as an object of this process, and leaves nothing behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Self

from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.launch import RunningCluster
from anabranch.coordinator.service.state import credentials_for
from anabranch.scratch import scratch_folder


class TemporarySystem:
    """A coordinator and all sites of a cluster that belong to this machine. `state` is the folder
    in which they keep what they have; it is removed in the end."""

    def __init__(
        self,
        cluster: ClusterConfig,
        progress: Callable[[str], None] = lambda line: None,
        *,
        revive: bool = False,
        revive_pause_s: float = 0.0,
        spark: SparkSession | None = None,
    ) -> None:
        """Sites that share this process share `spark`, which stays its owner's, or start a Spark.
        `revive`: site processes that die are started again, after a pause."""
        self.state = scratch_folder()
        self.running: RunningCluster | None = None
        try:
            self.credentials = credentials_for(cluster, self.state)
            self.coordinator = Coordinator(self.state, cluster, self.credentials)
            self.running = RunningCluster(
                self.coordinator,
                self.state,
                progress,
                tied=True,
                revive=revive,
                revive_pause_s=revive_pause_s,
                spark=spark,
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self.running:
            self.running.close()
        shutil.rmtree(self.state, ignore_errors=True)
