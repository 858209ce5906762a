"""What windows of 1 s, 10 minutes and an hour cost where tuples come from and where they are
summed up, in memory; and how long it takes to go on when the site that holds an hour is killed.

A file is replayed so fast that each width fits several times into a run, always at the same number
of tuples a second. Every result is compared with what numpy makes of the file.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.coordinator.base.reports import SiteStatus
from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from bench.systems.cluster import FailingCluster
from bench.systems.processes import family
from bench.systems.system import Keep, Progress, Status, read_lines

TPS = 20_000
KEYS = 100
START_US = 1_700_000_000_000_000 // 3_600_000_000 * 3_600_000_000
WIDTHS = {"1s": (1, 1), "10m": (600, 10), "1h": (3600, 60)}
"""Seconds, and how many times faster than its event times the file is replayed."""
SCRIPT = """
CREATE STREAM readings (k INT, x DOUBLE) TIMESTAMP ts
  FROM file(path = 'readings.parquet', speed = {speed}) AT source;
CREATE QUERY sums AS SELECT k, SUM(x) AS s, COUNT(*) AS c, window_start
  FROM readings[{width} SLIDE {slide}s] GROUP BY k
  INTO jsonl(path = '{width}.jsonl') ON desk AT centre;
"""


class Peaks(threading.Thread):
    """The most memory that sites took, each with its JVM, looked at ten times a second."""

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.mb = dict.fromkeys(pids, 0.0)
        self._pids = pids
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.1):
            for site, pid in self._pids.items():
                self.mb[site] = max(self.mb[site], _mb(pid))

    def stop(self) -> None:
        self._over.set()
        self.join()


def _mb(pid: int) -> float:
    total = 0.0
    for process in family(pid):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss / 1e6
    return total


def run(progress: Progress, keep: Keep, seconds: int = 90) -> dict[str, Any]:
    """One row per width, one of an hour with the site killed in the middle. `memory_ratio` is the
    most that source and centre took with an hour, over that with a second."""
    rows = []
    for width in WIDTHS:
        rows.append(measured(progress, width, seconds, kill=False))
        keep(rows[-1])
    killed = measured(progress, "1h", seconds, kill=True)
    first, last = rows[0], rows[-1]
    ratios = {site: last[f"{site}_mb"] / first[f"{site}_mb"] for site in ("source", "centre")}
    return {
        "rows": [*rows, killed],
        "memory_ratio": ratios,
        "recovery_s": killed["recovery_s"],
        "site_up_s": killed["site_up_s"],
    }


def measured(progress: Progress, width: str, seconds: int, *, kill: bool) -> dict[str, Any]:
    """Of one run in a system of its own."""
    width_s, speed = WIDTHS[width]
    slide_s = max(1, width_s // 60)
    progress(f"Windows of {width}{', killed' if kill else ''} …")
    folder = scratch_folder()
    write(folder / "readings.parquet", seconds, speed)
    row: dict[str, Any] = {"width": width, "killed": kill, "tuples": TPS * seconds}
    with closing(FailingCluster(["desk"], ["source", "centre"], progress)) as system:
        system.folder = folder
        system.wait_until_up()
        pids = {one.site: one.pid for one in system.status().sites if one.site != "desk"}
        peaks = Peaks(pids)
        peaks.start()
        begun = time.monotonic()
        system.execute(SCRIPT.format(speed=speed, width=width, slide=slide_s))
        if kill:
            row |= killed(system, begun + 0.6 * seconds)
        state: Any = None
        kept_mb = 0.0
        while not over(status := system.status()):
            state = snapshot_of(status) or state
            kept_mb = max(kept_mb, kept_at_source(status))
            if time.monotonic() > begun + 4 * seconds + 120:
                raise TaskError("the file is not done")
            time.sleep(0.25)
        peaks.stop()
    check(folder, width, seconds, speed, slide_s)
    row |= {f"{site}_mb": mb for site, mb in peaks.mb.items()}
    row |= {"upstream_mb": kept_mb, "snapshots": state.count if state else 0}
    row["state_mb"] = state.nbytes / 1e6 if state else 0.0
    return row


def over(status: Status) -> bool:
    sinks = [one for site in status.sites for one in site.tasks if one.sink]
    return bool(sinks) and all(one.state == "done" for one in sinks)


def snapshot_of(status: Status) -> Any:
    found = (one for site in status.sites for one in site.tasks if one.name == "sums")
    return next((one.snapshot for one in found if one.snapshot and one.snapshot.count), None)


def kept_at_source(status: Status) -> float:
    sites = [one for one in status.sites if isinstance(one, SiteStatus)]
    return sum(one.kept.get("readings", (0, 0))[1] for one in sites if one.site == "source") / 1e6


def killed(system: FailingCluster, at: float) -> dict[str, float]:
    """Kill the site that holds the windows; until it is there again, and until its results are as
    far as if nothing had been."""
    time.sleep(max(0.0, at - time.monotonic()))
    system.signal("centre", signal.SIGKILL)
    struck = time.monotonic()
    system.wait_for(lambda status: not _caught_up(status), "it is missed", 20.0)
    system.wait_for(_runs, "the site goes on", 120.0)
    up = time.monotonic()
    system.wait_for(_caught_up, "all caught up", 120.0)
    return {"site_up_s": up - struck, "recovery_s": time.monotonic() - struck}


def _runs(status: Status) -> bool:
    return any(
        one.name == "sums" and one.state == "running" for site in status.sites for one in site.tasks
    )


def _caught_up(status: Status) -> bool:
    """What has come in is summed up: nothing but what came just now waits."""
    newest = [s.newest for site in status.sites for s in site.sources if s.stream == "readings"]
    tasks = [one for site in status.sites for one in site.tasks if one.name == "sums"]
    alive = {site.site for site in status.sites if site.state == "up"}
    if "centre" not in alive or not tasks or not newest or newest[0] is None:
        return False
    mark = tasks[0].watermark
    return mark is not None and mark > newest[0] - 120 * 1_000_000


def write(path: Path, seconds: int, speed: int) -> None:
    k, x, ts = data(seconds, speed)
    times = pa.array(ts).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"k": pa.array(k), "x": pa.array(x), "ts": times})
    pq.write_table(table, path, row_group_size=100_000)


def data(seconds: int, speed: int) -> tuple[Any, Any, Any]:
    count = TPS * seconds
    rng = np.random.default_rng(1)
    step_us = 1_000_000 * speed // TPS
    return (
        rng.integers(0, KEYS, count).astype(np.int32),
        rng.integers(0, 1000, count).astype(np.float64),
        START_US + np.arange(count) * step_us,
    )


def check(folder: Path, width: str, seconds: int, speed: int, slide_s: int) -> None:
    """Whole outputs; sums of whole numbers are exact in any order."""
    k, x, ts = data(seconds, speed)
    width_us, slide_us = WIDTHS[width][0] * 1_000_000, slide_s * 1_000_000
    pane = (ts - START_US) // slide_us
    panes, per = int(pane[-1]) + 1, width_us // slide_us
    sums, counts = np.zeros((panes + 2 * per, KEYS)), np.zeros((panes + 2 * per, KEYS), np.int64)
    np.add.at(sums, (pane + per, k), x)
    np.add.at(counts, (pane + per, k), 1)
    found: dict[tuple[int, int], tuple[float, int]] = {}
    for line in read_lines(folder / f"{width}.jsonl"):
        row = json.loads(line)
        key = row["_ts"], row["k"]
        if key in found:
            raise TaskError(f"{key} is there twice")
        found[key] = row["s"], row["c"]
    wanted: dict[tuple[int, int], tuple[float, int]] = {}
    for first in range(1, panes + per):
        s, c = sums[first : first + per].sum(0), counts[first : first + per].sum(0)
        end = START_US + (first - per) * slide_us + width_us
        wanted |= {(end, key): (float(s[key]), int(c[key])) for key in np.flatnonzero(c).tolist()}
    if found != wanted:
        missing = len(wanted.keys() - found.keys())
        raise TaskError(f"{width}: {len(found)} results, {len(wanted)} wanted, {missing} missing")
