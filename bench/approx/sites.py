"""APPROXIMATE on real sites: workers killed under load, against a restart with replay.

One stream runs all the time. A worker's site is killed; *recovery* lasts until the table has every
window of every key that it would have without the death. In the end the whole table is compared
with what a few lines of Python make of the same input. Then the same aggregate runs at one site
without APPROXIMATE, which is killed and started again: it goes on from its restart point, or, the
second way, reads its source again from the beginning."""

from __future__ import annotations

import math
import random
import signal
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.errors import TaskError
from bench.systems.cluster import FailingCluster
from bench.systems.postgres import Postgres

Row = dict[str, Any]
Progress = Callable[[str], None]
TPS, KEYS = 480, 24
START_US = 1_700_000_000_000_000
WIDTH_US, SLIDE_US = 600_000, 200_000
EPSILON, CONFIDENCE = 0.5, 0.95
WORKERS = ("one", "two", "three")
BEFORE_US = 30_000_000
"""What is lost, or kept by restart points, has run for so long."""
LOOK_S = 0.02
QUERY = "SELECT k, AVG(x) AS x FROM {stream}[600ms SLIDE 200ms] GROUP BY k"


def value(n: int) -> float:
    return 20 + 5 * math.sin(n / 3000.0) + n % KEYS + 0.2 * math.sin(n * 7919.0)


def source(name: str, rows: int) -> str:
    return f"""
CREATE STREAM {name} (k BIGINT, x DOUBLE) FROM rate(tps = {TPS}, rows = {rows}, start = {START_US},
  k = 'value % {KEYS}',
  x = '20 + 5 * sin(value / 3000D) + value % {KEYS} + 0.2 * sin(value * 7919D)') AT source;
"""


def expected(rows: int) -> dict[tuple[int, int], float]:
    """(end, key) → mean."""
    sums: dict[tuple[int, int], list[float]] = defaultdict(list)
    for n in range(rows):
        ts = START_US + n * 1_000_000 // TPS
        first = ts // SLIDE_US * SLIDE_US + SLIDE_US
        for end in range(first, first + WIDTH_US, SLIDE_US):
            sums[end, n % KEYS].append(value(n))
    return {place: sum(xs) / len(xs) for place, xs in sums.items()}


class Found(NamedTuple):
    end: int
    key: int
    x: float
    estimated: bool
    lower: float | None
    upper: float | None
    stream: str


class Table:
    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(f"DROP TABLE IF EXISTS {name}")

    def close(self) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {self.name}")
        self._connection.close()

    def full_up_to(self, since: int = 0) -> int:
        """The newest end up to which no key of any window is missing; up to `since` none is."""
        found = self._connection.execute(
            f"SELECT _ts, count(*) FROM {self.name} WHERE _ts >= %s GROUP BY _ts ORDER BY _ts",
            (since,),
        ).fetchall()
        newest = 0
        for end, count in found:
            if count < KEYS and newest:
                break
            if newest and end > newest + SLIDE_US:
                break
            newest = end
        return newest

    def newest(self) -> int:
        row = self._connection.execute(f"SELECT coalesce(max(_ts), 0) FROM {self.name}").fetchone()
        return int(row[0]) if row else 0

    def rows(self) -> list[Found]:
        found = self._connection.execute(
            f"SELECT _ts, k, x, estimated, lower, upper, _stream FROM {self.name} ORDER BY _ts"
        )
        return [Found(*row) for row in found]


def run(progress: Progress, kills: int, seed: int = 1) -> Row:
    """With results in a PostgreSQL of its own."""
    database = Postgres()
    try:
        database.start()
        return measure(progress, database.url, kills, seed)
    finally:
        database.remove()


def measure(progress: Progress, url: str, kills: int, seed: int) -> Row:
    rows = TPS * (60 + 60 * kills)
    draw = random.Random(seed)
    with FailingCluster(["source"], WORKERS, progress) as cluster:
        table = Table(url, "anabranch_approx")
        try:
            cluster.execute(
                source("r", rows) + f"CREATE QUERY means AS {QUERY.format(stream='r')}"
                f" APPROXIMATE WITHIN {EPSILON} CONFIDENCE {CONFIDENCE:.0%} ON {', '.join(WORKERS)}"
                f" INTO postgres(url = '{url}', table = '{table.name}');"
            )
            times = [_kill(cluster, table, draw, progress, n + 1, kills) for n in range(kills)]
            cluster.wait_until_up()
            full = table.full_up_to()  # before they are read: results go on coming
            checked = check(table.rows(), expected(rows), full)
            progress(f"{kills} kills, recovered in {times} s: {checked}")
            cluster.drop_all()
        finally:
            table.close()
        rivals = range(min(3, kills))
        restarts = [_restart(cluster, url, progress) for _ in rivals]
        replays = [_replay(cluster, url, progress) for _ in rivals]
    usual = statistics.median(times)
    return {
        "kills": kills,
        "recovery_s": times,
        **checked,
        "restart_s": [whole for whole, _ in restarts],
        "restart_after_start_s": [after for _, after in restarts],
        "replay_s": [whole for whole, _ in replays],
        "replay_after_start_s": [after for _, after in replays],
        "recovery_ratio": round(statistics.median(whole for whole, _ in restarts) / usual, 2),
        "replay_ratio": round(statistics.median(whole for whole, _ in replays) / usual, 2),
    }


def _kill(
    cluster: FailingCluster, table: Table, draw: random.Random, progress: Progress, n: int, of: int
) -> float:
    progress(f"Kill {n} of {of}: waiting until all workers can be estimated …")
    cluster.wait_until_up()

    def ready(status: SystemStatus) -> bool:
        found = status.approximations.get("means")
        if found is None or found.recovering:
            return False
        return all(one.estimable for one in found.workers)

    status = cluster.wait_for(ready, "all workers estimable", 120)
    workers = [one.site for one in status.approximations["means"].workers]
    victim = draw.choice([site for site in workers if workers.count(site) == 1])
    time.sleep(draw.uniform(0, SLIDE_US / 1e6))
    progress(f"Kill {n} of {of}: {victim} …")
    begin = time.monotonic()
    cluster.signal(victim, signal.SIGKILL)
    return _until_full(table, begin)


def _until_full(table: Table, begin: float) -> float:
    """From `begin` until no window is missing that others, or the clock, say must be there."""
    at_death = table.newest()
    whole = table.full_up_to()
    while time.monotonic() < begin + 120:
        passed_us = int((time.monotonic() - begin) * 1e6)
        wanted = at_death + passed_us - 2 * SLIDE_US
        if passed_us > WIDTH_US and table.full_up_to(whole) >= wanted:
            return round(time.monotonic() - begin, 3)
        time.sleep(LOOK_S)
    raise TaskError("the output did not become whole within 120 s")


def check(rows: list[Found], means: Mapping[tuple[int, int], float], full: int) -> Row:
    """Up to the window that ends at `full`: every window of every key once, exact but for
    estimates, and these only between two generations of the worker that has the key."""
    wanted = {place: mean for place, mean in means.items() if place[0] <= full}
    found = [row for row in rows if row.end <= full]
    places = [(row.end, row.key) for row in found]
    exact = [abs(row.x - wanted[row.end, row.key]) for row in found if not row.estimated]
    guesses = [row for row in found if row.estimated]
    off = [abs(row.x - wanted[row.end, row.key]) for row in guesses]
    outside = [
        not row.lower <= wanted[row.end, row.key] <= row.upper
        for row in guesses
        if row.lower is not None and row.upper is not None
    ]
    return {
        "rows": len(found),
        "missing": len(set(wanted) - set(places)),
        "twice": len(places) - len(set(places)),
        "beyond": len(set(places) - set(wanted)),
        "differences": sum(one > 1e-9 for one in exact),
        "estimated": len(guesses),
        "needless": needless(found),
        "error": round(sum(one > EPSILON for one in off) / max(len(off), 1), 5),
        "worst_key_error": _worst_key(guesses, off),
        "largest_error": round(max(off, default=0.0), 4),
        "outside_bound": round(sum(outside) / max(len(outside), 1), 5),
    }


def _worst_key(guesses: list[Found], off: list[float]) -> float:
    by_key: dict[int, list[bool]] = defaultdict(list)
    for row, one in zip(guesses, off, strict=True):
        by_key[row.key].append(one > EPSILON)
    return round(max((sum(wrong) / len(wrong) for wrong in by_key.values()), default=0.0), 5)


def needless(rows: list[Found]) -> int:
    """Estimates of windows that one and the same generation of a worker delivered around them."""
    by_key: dict[int, list[Found]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.end):
        by_key[row.key].append(row)
    count = 0
    for found in by_key.values():
        before, waiting = "", 0
        for row in found:
            if row.estimated:
                waiting += 1
                continue
            count += waiting if row.stream == before else 0
            before, waiting = row.stream, 0
    return count


def _restart(cluster: FailingCluster, url: str, progress: Progress) -> tuple[float, float]:
    """The same aggregate at one site, killed and started again: seconds until its output is whole,
    and how many of them after the site was up again."""
    progress("The same without APPROXIMATE, from its restart point …")
    cluster.wait_until_up()
    table = Table(url, "anabranch_restart")
    try:
        cluster.execute(source("r", TPS * 600) + _plain("r", url, table))
        _wait_for(table, START_US + BEFORE_US)
        begin = time.monotonic()
        cluster.signal("one", signal.SIGKILL)
        up = _up_again(cluster)
        return _until_full(table, begin), round(time.monotonic() - up(), 3)
    finally:
        cluster.drop_all()
        table.close()


def _replay(cluster: FailingCluster, url: str, progress: Progress) -> tuple[float, float]:
    """The same, but what the dead site had is lost: it reads all input so far again, from a file
    and as fast as it can."""
    progress("The same without APPROXIMATE, from the beginning of its source …")
    cluster.wait_until_up()
    count = TPS * BEFORE_US // 1_000_000
    path = cluster.folder / "input.csv"
    lines = [f"{START_US + n * 1_000_000 // TPS},{n % KEYS},{value(n)!r}" for n in range(count)]
    path.write_text("\n".join(["ts,k,x", *lines]) + "\n")
    table = Table(url, "anabranch_replay")
    try:
        begin = time.monotonic()
        cluster.signal("one", signal.SIGKILL)
        up = _up_again(cluster)
        while not up():
            time.sleep(LOOK_S)
        cluster.execute(
            "CREATE STREAM r (k BIGINT, x DOUBLE) TIMESTAMP ts FROM file(path = 'input.csv',"
            " speed = 'max') AT source;" + _plain("r", url, table)
        )
        last = max(expected(count))[0] - WIDTH_US
        _wait_for(table, last)
        return round(time.monotonic() - begin, 3), round(time.monotonic() - up(), 3)
    finally:
        cluster.drop_all()
        table.close()


def _plain(stream: str, url: str, table: Table) -> str:
    return (
        f"CREATE QUERY means AS {QUERY.format(stream=stream)} AT one"
        f" INTO postgres(url = '{url}', table = '{table.name}');"
    )


def _up_again(cluster: FailingCluster) -> Callable[[], float]:
    """When site `one` was up again; 0 as long as it is not."""
    found: list[float] = []

    def watch() -> None:
        cluster.wait_for(lambda status: not _is_up(status), "site one is noticed to be dead", 60)
        cluster.wait_for(_is_up, "site one is up again", 120)
        found.append(time.monotonic())

    threading.Thread(target=watch, daemon=True).start()
    return lambda: found[0] if found else 0.0


def _is_up(status: SystemStatus) -> bool:
    return any(one.site == "one" and one.state == "up" for one in status.sites)


def _wait_for(table: Table, end: int) -> None:
    deadline = time.monotonic() + 120
    while not (_exists(table) and table.full_up_to() >= end):
        if time.monotonic() > deadline:
            raise TaskError("no results within 120 s")
        time.sleep(LOOK_S)


def _exists(table: Table) -> bool:
    try:
        table.newest()
    except psycopg.errors.UndefinedTable:
        return False
    return True
