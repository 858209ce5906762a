"""Primaries killed, stopped, without their JVMs, killed after their standbys or with them: is
anything lost or twice?

Every run is one query (or a chain of two) under load with a standby, on sites that are processes.
Its whole output, positions included, is compared with what a few lines of Python make of the same
input.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from anabranch.errors import TaskError
from anabranch.plan.service_levels import UNLIMITED
from bench.systems.cluster import FailingCluster
from bench.systems.system import Keep, Progress, Status, read_lines, task_states

TPS = 1_000
SECONDS = 8
ROWS = TPS * SECONDS
START_US = 1_700_000_000_000_000
STEP_US = 1_000_000 // TPS
WORKERS = ("centre", "centre2", "centre3")
BATCHES = (1, 20, 100, 500, UNLIMITED)
CODECS = ("", "COMPRESS zlib", "COMPRESS lz4", "COMPRESS zstd")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A query, and what comes out of it: the columns and the event time of each tuple."""

    name: str
    script: str
    expected: Callable[[], Iterator[tuple[Row, int]]]
    last: str = "q"


def _ts(value: int) -> int:
    return START_US + value * STEP_US


def _selection() -> Iterator[tuple[Row, int]]:
    return (((n, 2 * n), _ts(n)) for n in range(ROWS) if n % 3)


def _row_windows() -> Iterator[tuple[Row, int]]:
    for end in range(100, ROWS + 1, 10):
        window = range(end - 100, end)
        yield (sum(window), 100), _ts(end - 1)


def _time_windows(values: Iterable[int]) -> Iterator[tuple[Row, int]]:
    """Windows of 1 s that begin every 250 ms, by n % 4."""
    kept = list(values)
    width, slide = 1_000_000, 250_000
    first = _ts(kept[0]) // slide * slide - width + slide
    for start in range(first, _ts(kept[-1]) + 1, slide):
        inside = [n for n in kept if start <= _ts(n) < start + width]
        for key in dict.fromkeys(n % 4 for n in inside):  # in the order of their first tuples
            mine = [n for n in inside if n % 4 == key]
            yield (key, sum(mine), len(mine)), start + width


def _join() -> Iterator[tuple[Row, int]]:
    """Both streams have a tuple at each instant, and each meets those of the last 50 ms."""
    for now in range(ROWS):
        recent = range(max(0, now - 49), now + 1)
        pairs = [(n, m) for n in recent for m in recent if n % 25 == m % 25 and max(n, m) == now]
        yield from ((pair, _ts(now)) for pair in pairs)


SOURCE = f"""
CREATE STREAM {{name}} (n BIGINT) FROM rate(tps = {TPS}, rows = {ROWS}, start = {START_US},
  n = 'value') AT source;
"""
SELECTION = Case(
    "selection",
    SOURCE.format(name="r")
    + """CREATE QUERY q AS SELECT n, n * 2 AS m FROM r WHERE n % 3 <> 0 AT {one}
  STANDBY {options} INTO jsonl(path = 'out.jsonl') ON desk;""",
    _selection,
)
ROW_WINDOWS = Case(
    "aggregate of rows",
    SOURCE.format(name="r")
    + """CREATE QUERY q AS SELECT SUM(n) AS s, COUNT(*) AS c FROM r[100 ROWS SLIDE 10 ROWS]
  AT {one} STANDBY {options} INTO jsonl(path = 'out.jsonl') ON desk;""",
    _row_windows,
)
TIME_WINDOWS = Case(
    "aggregate of time",
    SOURCE.format(name="r")
    + """CREATE QUERY q AS SELECT n % 4 AS k, SUM(n) AS s, COUNT(*) AS c FROM r[1s SLIDE 250ms]
  GROUP BY n % 4 AT {one} STANDBY {options} INTO jsonl(path = 'out.jsonl') ON desk;""",
    lambda: _time_windows(range(ROWS)),
)
JOIN = Case(
    "join",
    SOURCE.format(name="r")
    + SOURCE.format(name="s")
    + """CREATE QUERY q AS MASTER r SELECT r.n AS n, s.n AS m FROM r[50ms], s[50ms]
  WHERE r.n % 25 = s.n % 25 AT {one}
  STANDBY {options} INTO jsonl(path = 'out.jsonl') ON desk;""",
    _join,
)
CHAIN = Case(
    "selection, then aggregate",
    SOURCE.format(name="r")
    + """CREATE QUERY p AS SELECT n FROM r WHERE n % 3 <> 0 AT {one} STANDBY {options};
CREATE QUERY q AS SELECT n % 4 AS k, SUM(n) AS s, COUNT(*) AS c FROM p[1s SLIDE 250ms]
  GROUP BY n % 4 AT {other} STANDBY {options} INTO jsonl(path = 'out.jsonl') ON desk;""",
    lambda: _time_windows(n for n in range(ROWS) if n % 3),
)
CASES = (SELECTION, ROW_WINDOWS, TIME_WINDOWS, JOIN, CHAIN)


def plan(
    kills: int, pauses: int, jvms: int, standby_first: int, both: int, seed: int
) -> Iterator[dict[str, Any]]:
    """What is done in each run: every query in turn, the rest at random."""
    rng = random.Random(seed)
    kinds = ["kill"] * kills + ["pause"] * pauses + ["jvm"] * jvms
    kinds += ["standby first"] * standby_first + ["both"] * both
    for number, kind in enumerate(kinds):
        yield {
            "kind": kind,
            "case": CASES[number % len(CASES)],
            "batch": rng.choice(BATCHES),
            "codec": rng.choice(CODECS),
            "at_s": rng.uniform(0.5, SECONDS - 1.5),
            "victim": rng.random(),
        }


def run(
    progress: Progress,
    keep: Keep,
    kills: int = 20,
    pauses: int = 5,
    jvms: int = 5,
    standby_first: int = 5,
    both: int = 0,
    seed: int = 1,
) -> dict[str, Any]:
    """`runs`, and over all of them how many tuples were `lost`, `repeated`, `reordered` or `wrong`,
    which is all 0 if the output is that of a run without failures."""
    planned = list(plan(kills, pauses, jvms, standby_first, both, seed))
    rows: list[dict[str, Any]] = []
    with FailingCluster(("source", "desk"), WORKERS, progress) as cluster:
        begun = time.monotonic()
        for number, one in enumerate(planned, 1):
            left = _left(time.monotonic() - begun, len(rows), len(planned))
            progress(f"Run {number} of {len(planned)}, {one['kind']}, {one['case'].name}{left} …")
            rows.append(_one_run(cluster, **one))
            keep(rows[-1])
    faults = {name: sum(row[name] for row in rows) for name in FAULTS}
    return {"runs": len(rows), **faults, "rows": rows}


def _left(elapsed_s: float, done: int, of: int) -> str:
    """How long it takes yet, once something is known of it."""
    return f", about {elapsed_s / done * (of - done) / 60:.0f} min to go" if done else ""


def _one_run(
    cluster: FailingCluster,
    kind: str,
    case: Case,
    batch: int,
    codec: str,
    at_s: float,
    victim: float,
) -> dict[str, Any]:
    standby_too = kind in ("standby first", "both")
    up = _up(cluster, len(WORKERS) if standby_too else 2)
    one, other, last = up[0], up[1], up[-1]
    if kind == "both":  # a chain's two queries as well: nobody is left who knew them
        other = one
    output = cluster.folder / "out.jsonl"
    output.unlink(missing_ok=True)
    size = "UNLIMITED" if batch == UNLIMITED else batch
    where = f"ON {last} " if standby_too else ""
    options = f"{where}BATCH {size} {codec}"
    cluster.execute(case.script.format(options=options, one=one, other=other))
    begun = time.monotonic()
    status = cluster.wait_for(cluster.protected, "protection")
    time.sleep(max(0.0, begun + at_s - time.monotonic()))
    killed, struck = _strike(cluster, kind, status, victim)
    end = cluster.wait_for(
        lambda s: task_states(s, f"{case.last}/sink") == ["done"], f"the end of {case.name}", 90
    )
    faults = compare(read_lines(output), case)
    cluster.drop_all()
    return {
        "kind": kind,
        "query": case.name,
        "options": options,
        "killed": killed,
        "took_over": _epochs(end) > _epochs(status),
        "recovery_s": _recovery_s(end, struck),
        **faults,
    }


def _up(cluster: FailingCluster, least: int) -> list[str]:
    """Workers that are up: a run does not wait for those that the one before it has killed, unless
    it kills a standby, for which only workers will do."""
    status = cluster.wait_for(lambda s: len(_workers(s)) >= least, f"{least} workers", 120)
    return _workers(status)


def _workers(status: Status) -> list[str]:
    return [one.site for one in status.sites if one.site in WORKERS and one.state == "up"]


def _recovery_s(status: Status, struck: float) -> float | None:
    """From the stroke until what the dead one had been sent was processed elsewhere too; None if
    it was restarted instead of replaced."""
    ends = [task.standby.timeline.get("recovered", 0.0) for task in status.tasks() if task.standby]
    found = [end - struck for end in ends if end > struck]
    return round(max(found), 3) if found else None


def _epochs(status: Status) -> int:
    return max(one.epoch for one in status.protection.values())


def _strike(cluster: FailingCluster, kind: str, status: Status, chance: float) -> tuple[str, float]:
    """Who was hit and when. A site that is stopped goes on after it has been replaced."""
    found = sorted(status.protection.values(), key=lambda one: one.site)
    assignment = found[int(chance * len(found))]
    struck = time.time()
    if kind == "pause":
        cluster.signal(assignment.site, signal.SIGSTOP)
        try:
            cluster.wait_for(lambda s: _epochs(s) > _epochs(status), "a take-over", 30)
            time.sleep(0.5)
        finally:
            cluster.signal(assignment.site, signal.SIGCONT)
        return assignment.site, struck
    if kind == "jvm":
        cluster.kill_jvm(assignment.site)
        return assignment.site, struck
    if kind == "standby first":
        cluster.signal(assignment.standby or "", signal.SIGKILL)
        time.sleep(0.2 + chance)
        struck = time.time()
    cluster.signal(assignment.site, signal.SIGKILL)
    if kind == "both":
        cluster.signal(assignment.standby or "", signal.SIGKILL)
    return assignment.site, struck


FAULTS = ("lost", "repeated", "reordered", "wrong")


def compare(lines: list[str], case: Case) -> dict[str, int]:
    """Tuples by position: those that are missing, there more than once, out of order, or not what
    they should be."""
    expected = list(case.expected())
    got = [json.loads(line) for line in lines]
    positions = [row.pop("_pos") for row in got]
    times = [row.pop("_ts") for row in got]
    rows = [tuple(row.values()) for row in got]
    seen = set(positions)
    wanted = range(1, len(expected) + 1)
    wrong = sum(
        not (0 < at <= len(expected)) or expected[at - 1] != (row, ts)
        for at, row, ts in zip(positions, rows, times, strict=True)
    )
    return {
        "lost": sum(at not in seen for at in wanted),
        "repeated": len(positions) - len(seen),
        "reordered": sum(b < a for a, b in pairwise(positions)),
        "wrong": wrong,
    }


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if any output was not that of a run without failures."""
    if any(result[name] for name in FAULTS):
        raise TaskError(", ".join(f"{result[name]} {name}" for name in FAULTS))
