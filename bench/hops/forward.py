"""A plant that cannot reach the centre: does it go on meanwhile, and does the centre get all later?

Two sites on machines of their own (`bench.systems.namespaces`). The plant reads a stream, for a
query of its own and for two at the centre, one of them over windows that are open for longer than
the cut. The centre is cut off without a word for a while; then the cut heals, and all outputs are
compared as wholes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from anabranch.errors import TaskError
from bench.systems.silent import SilentCluster
from bench.systems.system import Progress, Status, task_states

SITES = ("plant", "centre")
QUEUE_BYTES = 4_000_000
"""A tenth of the default, so that what is spilled is many times what memory has."""
WARM_S = 10.0
LOOK_S = 0.25
FASTER = 5.0
"""The centre is to catch up so many times as fast as tuples come."""
NEAR_SLOWER = 0.9
"""Others are never slower than that."""

SCRIPT = """
CREATE STREAM r (n BIGINT) FROM rate(tps = {tps}, rows = {rows}, n = 'value') {keep} AT plant;
CREATE QUERY near AS SELECT n, n * 2 AS m FROM r WHERE n % 50 = 0 AT plant
  INTO jsonl(path = 'near.jsonl') ON plant;
CREATE QUERY far AS SELECT n, n * 2 AS m FROM r WHERE n % 5 = 0 AT centre
  INTO jsonl(path = 'far.jsonl') ON centre;
CREATE QUERY counts AS SELECT COUNT(*) AS c, MAX(n) AS last FROM r[{rows} ROWS SLIDE {rows} ROWS]
  AT centre INTO jsonl(path = 'counts.jsonl') ON centre;
"""


EVERY = {"near": 50, "far": 5, "past": 20}
"""Of how many tuples each query gives one."""
PAST = """
CREATE QUERY past AS SELECT n, n * 2 AS m FROM r BEGINNING WHERE n % 20 = 0 AT plant
  INTO jsonl(path = 'past.jsonl') ON plant;
"""
"""Comes in the middle of the cut, where the stream is kept."""


@dataclass(frozen=True)
class Moment:
    """What the plant's own query had given, and what its process took, at some time."""

    at: float
    near: int
    memory: int


def run(
    progress: Progress, *, tps: int = 5_000, cut_s: float = 120.0, keep: str = ""
) -> dict[str, Any]:
    """The rates of both queries and the plant's memory before, during and after the cut, and what
    is wrong with the outputs. Raises TaskError if something does not come to its end."""
    rows = round(tps * (WARM_S + cut_s + WARM_S + 2 * cut_s / (FASTER - 1)))
    with SilentCluster(progress, SITES, QUEUE_BYTES) as cluster:
        clause = f"KEEP {keep}" if keep else ""
        cluster.execute(SCRIPT.format(tps=tps, rows=rows, keep=clause))
        cluster.wait_for(lambda s: _position(s, "far") > 0, "the first tuples at the centre")
        moments = [*_watched(cluster, WARM_S)]
        before = moments[-1]
        progress(f"The centre is cut off for {cut_s:g} s …")
        cluster.machines.cut("centre")
        moments += _watched(cluster, cut_s / 2)
        if keep:
            cluster.execute(PAST)
        moments += _watched(cluster, cut_s / 2)
        status = cluster.coordinator.status(ask=False)
        progress("It is back …")
        cluster.machines.heal("centre")
        caught_up_s, caught_up_at = _catch_up(cluster, tps)
        during = [one for one in moments if one.at > before.at]
        names = ("near", "far", *(["past"] if keep else []))
        cluster.wait_for(lambda s: _done(s, names), "the end", 60 + rows / tps)
        spilled = {one.site: one.spilled for one in status.sites}["plant"].get("r")
        left = _left(cluster.folder)
        return {
            "tps": tps,
            "cut_s": cut_s,
            "rows": rows,
            "near_tps": _rate(moments[0], before),
            "near_tps_cut": _rate(before, during[-1]),
            "memory_mb": before.memory / 1e6,
            "memory_mb_cut": max(one.memory for one in during) / 1e6,
            "spilled_mb": (spilled.bytes if spilled else 0) / 1e6,
            "caught_up_s": caught_up_s,
            "catch_up_tps": caught_up_at / caught_up_s,
            "left_bytes": left,
            "faults": faults(cluster.folder, rows, names),
        }


def _watched(cluster: SilentCluster, seconds: float) -> Iterator[Moment]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(LOOK_S)
        yield _moment(cluster)


def _moment(cluster: SilentCluster) -> Moment:
    status = cluster.coordinator.status(ask=False)
    pid = next(one.pid for one in status.sites if one.site == "plant")
    near = _last_position(cluster.folder / "near.jsonl")
    return Moment(time.monotonic(), near, psutil.Process(pid).memory_info().rss)


def _last_position(path: Path) -> int:
    if not path.exists() or not path.stat().st_size:
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1_000))
        lines = file.read().split(b"\n")
    return int(json.loads(lines[-2])["_pos"]) if len(lines) > 1 else 0


def _catch_up(cluster: SilentCluster, tps: int) -> tuple[float, int]:
    """Seconds until the centre has what the plant has, and the tuples it was given in these."""
    begun, first = time.monotonic(), 5 * _last_position(cluster.folder / "far.jsonl")
    while True:
        time.sleep(LOOK_S)
        far = 5 * _last_position(cluster.folder / "far.jsonl")
        near = 50 * _last_position(cluster.folder / "near.jsonl")
        if near - far < 2 * tps:
            return time.monotonic() - begun, far - first
        if time.monotonic() - begun > 600:
            raise TaskError(f"the centre is still {near - far} tuples behind after 600 s")


def _position(status: Status, task: str) -> int:
    return max((one.position for one in status.tasks() if one.name == task), default=0)


def _done(status: Status, names: Iterable[str]) -> bool:
    return all(task_states(status, f"{name}/sink") == ["done"] for name in names)


def _rate(one: Moment, other: Moment) -> float:
    """Tuples of the stream a second, by what the plant's query gave."""
    return 50 * (other.near - one.near) / (other.at - one.at)


def _left(folder: Path) -> int:
    """Bytes of spilled tuples that are on a disk though nobody needs them."""
    return sum(path.stat().st_size for path in folder.rglob("*.spill.*.log"))


def faults(folder: Path, rows: int, names: Iterable[str]) -> dict[str, int]:
    """Wrong lines of each output; one that has too few or too many is wrong from there on."""
    found = {}
    for name in names:
        given = enumerate(range(0, rows, EVERY[name]), 1)
        expected = ({"n": n, "m": 2 * n, "_pos": at} for at, n in given)
        found[name] = _wrong(folder / f"{name}.jsonl", expected)
    found["counts"] = _wrong(
        folder / "counts.jsonl", iter([{"c": rows, "last": rows - 1, "_pos": 1}])
    )
    return found


def _wrong(path: Path, expected: Iterator[dict[str, int]]) -> int:
    wrong = 0
    with path.open() as file:
        for line in file:
            row, wanted = json.loads(line), next(expected, {"": 0})
            wrong += any(row.get(key) != value for key, value in wanted.items())
    return wrong + sum(1 for _ in expected)


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if an output is not what it should be, or a promise was not kept."""
    problems = [f"{n} lines of {name} are wrong" for name, n in result["faults"].items() if n]
    if result["near_tps_cut"] < NEAR_SLOWER * result["tps"]:
        problems.append(f"the plant's query fell to {result['near_tps_cut']:,.0f} tuples/s")
    if result["catch_up_tps"] < FASTER * result["tps"]:
        problems.append(f"the centre caught up at {result['catch_up_tps']:,.0f} tuples/s only")
    if result["memory_mb_cut"] > 1.3 * result["memory_mb"]:
        problems.append(f"the plant took {result['memory_mb_cut']:,.0f} MB")
    if result["left_bytes"]:
        problems.append(f"{result['left_bytes']:,} bytes are left on a disk")
    if problems:
        raise TaskError("; ".join(problems))
