"""The most that the sites sustain with and without a standby: a file, as fast as it goes through.

From the first tuple appended at the source to the last result written at the desk. Kinds of standby
take turns, and the best of each counts: what else the machine does only ever makes it slower.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.errors import TaskError
from anabranch.link.messages import Status
from anabranch.link.reports import SiteReport
from anabranch.plan.service_levels import UNLIMITED
from bench.standby.queries import NAMES, SELECTION, values
from bench.systems.cluster import FailingCluster
from bench.systems.system import account

ROWS = 4_000_000
LIMIT_S = 120.0
SCRIPT = """
CREATE STREAM f (id BIGINT, timestamp BIGINT, temperature DOUBLE, illuminance DOUBLE,
                 x DOUBLE, y DOUBLE, z DOUBLE)
  TIMESTAMP timestamp FROM file(path = 'in.parquet', speed = 'max') AT source;
CREATE QUERY q AS SELECT id, timestamp, temperature, illuminance, x, y, z * 2 AS z FROM f
  AT centre {standby}
  INTO parquet(path = 'rows', rows_per_file = 200000) ON desk;
"""
KINDS: dict[str, str] = {
    "none": "",
    "1": "BATCH 1",
    "100": "BATCH 100",
    "300": "BATCH 300",
    "500": "BATCH 500",
    str(UNLIMITED): "BATCH UNLIMITED",
    "100C": "BATCH 100 COMPRESS zlib",
}


def run(cluster: FailingCluster, quick: bool) -> dict[str, Any]:
    """Tuples a second by kind of standby, and `healthy_throughput_ratio`."""
    rows, rounds = ROWS, 2 if quick else 3
    kinds = ("none", "100", "1", str(UNLIMITED)) if quick else tuple(KINDS)
    _write(cluster.folder / "in.parquet", rows)
    best = dict.fromkeys(kinds, 0.0)
    for _ in range(rounds):
        for kind in kinds:
            best[kind] = max(best[kind], rows / _seconds(cluster, KINDS[kind], rows))
    ratio = best["100"] / best["none"]
    return {"tuples": rows, "tuples_per_s": best, "healthy_throughput_ratio": ratio}


def _write(path: Path, rows: int) -> None:
    pq.write_table(pa.table(values(rows), names=list(NAMES)), path, row_group_size=100_000)


def _seconds(cluster: FailingCluster, options: str, rows: int) -> float:
    cluster.wait_until_up()
    output = cluster.folder / "rows"
    shutil.rmtree(output, ignore_errors=True)
    standby = f"STANDBY ON centre2 {options}" if options else ""
    desk = cluster.coordinator.sites.peer("desk")
    cluster.execute(SCRIPT.format(standby=standby))
    begun = time.monotonic()
    while not _done(desk.send(Status())):
        if time.monotonic() > begun + LIMIT_S:
            remedy = account(cluster.status())
            raise TaskError(f"{rows:,} tuples not through within {LIMIT_S:.0f} s", remedy=remedy)
        time.sleep(0.02)
    took = time.monotonic() - begun
    cluster.drop_all()
    check(pq.read_table(output), rows)
    return took


def _done(report: SiteReport) -> bool:
    return any(one.name == "q/sink" and one.state == "done" for one in report.tasks)


def check(found: pa.Table, rows: int) -> None:
    """Raises TaskError unless it is what the selection makes of the file."""
    columns = [np.arange(1, rows + 1), *SELECTION.expected(rows)]
    for name, column in zip(("_pos", *NAMES), columns, strict=True):
        if not np.array_equal(found[name].to_numpy(), column):
            raise TaskError(f"selection of {rows:,} tuples: {name} is wrong")
