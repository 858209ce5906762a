"""Real sites for the deadline experiment: a process and a Spark each, one slot.

An operator's cost is an expression that keeps a processor busy, calibrated so that an instance of
one tuple takes as long as it should, from one such instance to the next: what the system itself
takes of that is part of it. Results are judged by the tasks themselves, all of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.config.model import YOUNG_JVM
from anabranch.errors import TaskError
from anabranch.link.messages import Push, Status, Urgencies
from anabranch.link.reports import SiteReport, TaskReport
from anabranch.plan.service_levels import Urgency
from anabranch.site.sources.open_stream import encoded
from bench.systems.system import Progress, System

WORK = "length(sha2(repeat(concat(lpad(CAST(id AS STRING), 8, '0'), '{salt}'), {size}), 256))"
"""As much for every `id`: a thousand must not take longer than one."""
LOOK_S = 0.1
CHAIN = 3
"""Queries, one behind the other, that take `PUSHED` tuples, `TRIALS` times: by the ages of their
results it is found what an instance takes."""
PUSHED = 50
TRIALS = 30
SMALL, LARGE = 1, 12_000
SCALES = (1.0, 2.0, 5.0, 10.0, 20.0)
OWN = 0.75
"""Of what an operator takes, what the system may take of it at most."""


@dataclass(frozen=True)
class Calibration:
    """Seconds that a tuple takes in all, with hardly any work and with work of size `most`."""

    small: float
    large: float
    most: int = LARGE

    def size(self, unit_s: float) -> int:
        """The `size` of work that makes it take `unit_s`."""
        if self.small >= unit_s:
            raise TaskError(
                f"a tuple takes {self.small * 1e3:.2f} ms here, whatever is computed, and"
                f" should take {unit_s * 1e3:g} ms",
                remedy="Take a larger --scale.",
            )
        each = max(1e-12, self.large - self.small) / (self.most - SMALL)
        return round(SMALL + (unit_s - self.small) / each)

    def scales(self, unit_s: float) -> list[float]:
        """Those of `SCALES` at which an instance's own cost leaves room for work."""
        return [one for one in SCALES if self.small <= OWN * one * unit_s] or [SCALES[-1]]


class Nodes(System):
    """Sites by name, each with its settings. Streams are pushed into."""

    def __init__(self, sites: Mapping[str, Mapping[str, Any]], progress: Progress) -> None:
        configs = {
            name: SiteConfig(
                name=name, isolation="process", master="local[1]", conf=YOUNG_JVM, **settings
            )
            for name, settings in sites.items()
        }
        # Reports take milliseconds of a site's time, which a wave has not.
        cluster = ClusterConfig(sites=configs, heartbeat_interval_us=2_000_000)
        super().__init__(cluster, progress=progress)

    def drop(self, queries: Sequence[str], streams: Sequence[str]) -> None:
        """Queries, each before those that it reads."""
        self.execute("".join(f"DROP QUERY {name};" for name in queries))
        self.execute("".join(f"DROP STREAM {name};" for name in streams))

    def push(self, site: str, stream: str, count: int) -> None:
        table = pa.table({"id": pa.array(range(count), pa.int64())})
        self.coordinator.sites.peer(site).send(Push(stream, encoded(table)))

    def hurry(self, site: str, urgencies: Mapping[str, Urgency]) -> None:
        self.coordinator.sites.peer(site).send(Urgencies(dict(urgencies)))

    def column(self, file: str, name: str) -> list[Any]:
        """Of what a jsonl sink has written, with a relative path."""
        with (self.folder / file).open() as lines:
            return [json.loads(line)[name] for line in lines]

    def report(self, site: str) -> SiteReport:
        return self.coordinator.sites.peer(site).send(Status())

    def tasks(self, *sites: str) -> dict[str, TaskReport]:
        found = {task.name: task for site in sites for task in self.report(site).tasks}
        for task in found.values():
            if task.error:
                raise TaskError(task.error.message)
        return found

    def wait_until_taken(
        self, sites: Sequence[str], processed: Mapping[str, int], timeout_s: float = 60.0
    ) -> dict[str, TaskReport]:
        """Until tasks have taken so many tuples in all. Looking disturbs, so it is done seldom."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            found = self.tasks(*sites)
            if all(found[name].rows_in >= count for name, count in processed.items()):
                return found
            time.sleep(LOOK_S)
        raise TaskError(f"not done within {timeout_s:g} s", remedy="The machine may be too busy.")

    def calibrated(self, site: str, *, batched: bool) -> Calibration:
        """At a site whose instances take all that waits, or one tuple."""
        small, large = (self._turn_s(site, size, batched) for size in (SMALL, LARGE))
        return Calibration(small, large)

    def size(self, site: str, unit_s: float, found: Calibration, *, batched: bool) -> int:
        """The `size` of work that makes a tuple take `unit_s` there, tried out once more: JVMs
        differ, and what they have compiled by then."""
        size = found.size(unit_s)
        return Calibration(found.small, self._turn_s(site, size, batched), size).size(unit_s)

    def _turn_s(self, site: str, size: int, batched: bool) -> float:
        """What a tuple costs a query, in a chain of them: results of tuples that came at once are
        as old as all of that takes; or one by one, with an equal turn for each query, half as old
        at the median."""
        chain = [f"trial_{site}", *(f"tried{n}_{site}" for n in range(CHAIN))]
        self.execute(
            f"CREATE STREAM {chain[0]} (id BIGINT) AT {site};"
            + "".join(
                f"CREATE QUERY {name} AS SELECT id, {work(size)} AS w FROM {read} AT {site};"
                for read, name in pairwise(chain)
            )
        )
        for trial in range(1, TRIALS + 1):
            self.push(site, chain[0], PUSHED)
            self.wait_until_taken([site], {chain[-1]: PUSHED * trial})
        age_ms = self.tasks(site)[chain[-1]].p50_ms
        assert age_ms is not None, "what it was pushed has come out"
        self.drop(chain[:0:-1], chain[:1])
        return age_ms * (1 if batched else 2) / (PUSHED * CHAIN) / 1e3


def work(size: int, units: int = 1) -> str:
    """An expression of so many times that cost. Each differs, or Spark would do it once."""
    return " + ".join(WORK.format(salt=chr(97 + n), size=size) for n in range(units))
