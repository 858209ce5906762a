"""A system in this process whose results a benchmark reads as they come."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.idle import failures, idle
from anabranch.coordinator.service.launch import LocalSites
from anabranch.language.source import Script
from anabranch.link.gate import Credentials
from anabranch.link.messages import Ack, Acks, Follow
from anabranch.link.wire import BORN
from anabranch.scratch import scratch_folder
from anabranch.site.tasks.task import Task
from anabranch.stream.batch import Batch

READER = "bench"


class BenchSystem:
    """Sites around a Spark session, which stays its owner's."""

    def __init__(self, spark: SparkSession, *sites: str) -> None:
        self._site = sites[0]
        self._state = scratch_folder()
        cluster = Cluster.of_sites(sites)
        self._coordinator = Coordinator(self._state, cluster, Credentials("bench"))
        self._sites = LocalSites(self._coordinator, cluster.sites, spark)

    def start(self, text: str, query: str) -> Results:
        """Run a script, and read the output of `query` from its first tuple on."""
        self._coordinator.execute(Script(text), str(self._state), {query: READER})
        return Results(self._coordinator, query, self._site)

    def execute(self, text: str) -> None:
        self._coordinator.execute(Script(text), str(self._state))

    def wait(self) -> None:
        """Until all is out; raises what failed."""
        while not idle(status := self._coordinator.status()):
            for error in failures(status):
                raise error
            time.sleep(0.02)

    def sink_latencies_ms(self) -> list[float]:
        """How old results were when they had reached their sinks."""
        return [age * 1e3 for task in self._sinks() for age in task.measures.latencies()]

    def forget_latencies(self) -> None:
        for task in self._sinks():
            task.measures.forget_latencies()

    def _sinks(self) -> list[Task]:
        return [task for task in self._sites.tasks() if task.spec.sink]

    def close(self) -> None:
        self._sites.close()
        self._coordinator.close()
        shutil.rmtree(self._state, ignore_errors=True)


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
        found: list[float] = []
        for batch in self.batches():
            if time.monotonic() > begin + seconds:
                break
            if time.monotonic() >= begin and batch.rows:
                born = batch.data.column(BORN).to_numpy()
                found.extend(((time.time_ns() // 1000 - born) / 1000).tolist())
        self._follow.cancel()
        return found

    def batches(self) -> Iterator[Batch[pa.RecordBatch]]:
        told = time.monotonic()
        for batch in self._follow:
            yield batch
            if time.monotonic() - told > 0.25:
                self._acknowledge(batch.last)
                told = time.monotonic()

    def _acknowledge(self, last: int) -> None:
        self._peer.send(Acks((Ack.of_reader(self._query, READER, last),)))
