"""A rate that steps to five times and back, then a cost per tuple that triples: does the tuner keep
both limits? Once a second, what is shipped is measured and the recovery that the batch in force
would have is computed; the five seconds after a step are the tuner's to find out."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.errors import TaskError
from anabranch.link.messages import Status
from anabranch.link.reports import TuningReport
from anabranch.standby.choice import StandbyLimits, choose
from anabranch.standby.cost import Load, StandbyModel
from bench.systems.cluster import FailingCluster
from bench.systems.system import read_lines

LIMITS = StandbyLimits(recovery_s=0.7, overhead=0.25)
STEPS = ((1_000, 4_000), (5_000, 4_000), (1_000, 4_000), (1_000, 12_000))
"""Tuples a second, and the bytes that each has hashed: about 50 µs, then 150."""
PHASES = len(STEPS)
GRACE_S = 5.0
WINDOW_S = (2.0, 4.0)
"""Shipments are counted over at least and at most this, so that a batch more or less matters
little, and not over what the grace covers."""
SLACK_S = 0.1
SCRIPT = f"""
CREATE STREAM f (id BIGINT, heavy INT) TIMESTAMP ts
  FROM file(path = 'steps.parquet', speed = 1) AT source;
CREATE QUERY q AS SELECT id, sha2(repeat('x', heavy), 256) AS s FROM f AT centre
  STANDBY ON centre2 RECOVERY {LIMITS.recovery_s:g}s OVERHEAD {LIMITS.overhead:.0%}
  INTO jsonl(path = 'steps.jsonl') ON desk;
"""


@dataclass(frozen=True)
class Second:
    """`since_step_s` is how long the present phase lasts; `overhead` is None while too little was
    sent to tell."""

    since_step_s: float
    batch: int
    load: Load
    overhead: float | None

    def report(self) -> dict[str, Any]:
        return {
            "since_step_s": round(self.since_step_s, 2),
            "batch": self.batch,
            "overhead": self.overhead,
            "rate": self.load.rate,
            "worst_recovery_s": StandbyModel(self.load).worst_recovery(self.batch),
            "possible": possible(self.load),
            "held": held(self),
        }


def possible(load: Load) -> bool:
    """The model says that some batch keeps both limits."""
    return not choose(load, LIMITS).broken


def held(second: Second) -> bool:
    assert LIMITS.recovery_s is not None
    assert LIMITS.overhead is not None
    recovery = StandbyModel(second.load).worst_recovery(second.batch)
    return recovery <= LIMITS.recovery_s and (second.overhead or 0.0) <= LIMITS.overhead


def share_held(seconds: Iterable[Second]) -> tuple[float | None, int]:
    """Of the seconds that count, and how many those are."""
    counted = [
        one
        for one in seconds
        if one.since_step_s > GRACE_S and one.overhead is not None and possible(one.load)
    ]
    return (sum(map(held, counted)) / len(counted), len(counted)) if counted else (None, 0)


def run(cluster: FailingCluster, step_s: float) -> dict[str, Any]:
    cluster.wait_until_up()
    rows = write(cluster.folder / "steps.parquet", step_s)
    cluster.execute(SCRIPT)
    seconds = _watch(cluster, step_s)
    cluster.wait_for(lambda s: _done(s), "the end of the steps", 60)
    check(read_lines(cluster.folder / "steps.jsonl"), rows)
    cluster.drop_all()
    share, counted = share_held(seconds)
    return {
        "tuner_held": share,
        "seconds_counted": counted,
        "seconds": [one.report() for one in seconds],
    }


def write(path: Path, step_s: float) -> list[int]:
    """The tuples' `heavy`, in order."""
    times, heavy, begin = [], [], 0
    for tps, size in STEPS:
        count = round(tps * step_s)
        times.append(begin + np.arange(count) * 1_000_000 // tps)
        heavy.append(np.full(count, size, dtype=np.int32))
        begin += round(step_s * 1e6)
    ts, sizes = np.concatenate(times), np.concatenate(heavy)
    stamps = pa.array(ts + 1_700_000_000_000_000).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table([np.arange(len(ts)), sizes, stamps], names=["id", "heavy", "ts"]), path)
    return [int(size) for size in sizes]


def _watch(cluster: FailingCluster, step_s: float) -> list[Second]:
    """Once a second until the last phase is over."""
    source = cluster.coordinator.sites.peer("source")
    begun: float | None = None
    sent: list[tuple[float, int, int]] = []
    found: list[Second] = []
    while begun is None or time.monotonic() < begun + PHASES * step_s:
        time.sleep(1.0)
        report = source.send(Status())
        if begun is None and report.sources and report.sources[0].rows:
            begun = time.monotonic() - report.sources[0].rows / STEPS[0][0]
        traffic = report.traffic.get("f")
        now = time.monotonic()
        if traffic:
            sent.append((now, traffic.primary, traffic.packed))
        tuning = _tuning(cluster)
        if begun is not None and tuning:
            since = (now - begun) % step_s
            first = tuning[0]
            found.append(Second(since, first.batch, first.load, shipped(sent, now, since)))
    return found


def shipped(sent: list[tuple[float, int, int]], now: float, since_step_s: float) -> float | None:
    """Overhead of the last seconds behind the grace, from cumulative bytes to the primary and the
    standby; None if those are too few."""
    least, most = WINDOW_S
    begin = now - min(most, since_step_s - GRACE_S) - SLACK_S
    window = [one for one in sent if one[0] >= begin]
    if len(window) < 2 or window[-1][0] - window[0][0] < least - SLACK_S:
        return None
    bytes_sent = window[-1][1] - window[0][1]
    return (window[-1][2] - window[0][2]) / bytes_sent if bytes_sent else None


def _tuning(cluster: FailingCluster) -> Sequence[TuningReport]:
    assigned = cluster.status().protection.get("q")
    if assigned is None or assigned.standby is None:
        return ()
    report = cluster.coordinator.sites.peer(assigned.standby).send(Status())
    standing_by = next((one.standby for one in report.tasks if one.name == "q"), None)
    return standing_by.tuning if standing_by else ()


def _done(status: SystemStatus) -> bool:
    return any(task.name == "q/sink" and task.state == "done" for task in status.tasks())


def check(lines: list[str], heavy: list[int]) -> None:
    """Raises TaskError unless every tuple's hash came out once, in order."""
    hashes = {size: hashlib.sha256(b"x" * size).hexdigest() for size in set(heavy)}
    got = [(row["_pos"], row["id"], row["s"]) for row in map(json.loads, lines)]
    if got != [(n + 1, n, hashes[size]) for n, size in enumerate(heavy)]:
        raise TaskError("the output of the steps is not what it should be")
