"""A primary's machine vanishes without a word: how long is there no output, and is all of it right?

Three sites on machines of their own (`bench.systems.namespaces`): the source, the primary, and its
standby. While tuples flow the primary is cut off: in both directions, in one of them, or by a link
that comes and goes; or all its processes stand still. Then that is over, and the whole output is
compared. The results go to a file at the source's site, or into PostgreSQL: then the primary writes
them itself, its successor fences it off, and it may be in the middle of a transaction when it is
cut off from its database, too.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import psycopg

from anabranch.errors import TaskError
from bench.systems.postgres import Postgres
from bench.systems.silent import SilentCluster
from bench.systems.system import Keep, Progress, Status, task_states

TPS, SECONDS = 200, 16
ROWS = TPS * SECONDS
CUT_AT_S, CUT_S = 3.0, 6.0
FLAPPING = {
    "flapping quickly": (0.3, 0.3),
    "flapping": (0.9, 0.6),
    "flapping slowly": (1.4, 0.5),
}
"""A link that comes and goes: for how long it is away, and there."""
SITES = ("source", "one", "two")
CASES = ("both ways", "what it sends", "what it is sent", *FLAPPING, "paused")
SINKS = ("file", "postgres")
SCRIPT = f"""
CREATE STREAM r (n BIGINT) FROM rate(tps = {TPS}, rows = {ROWS}, n = 'value') AT source;
CREATE QUERY q AS SELECT n, n * 2 AS m FROM r WHERE n % 3 <> 0 AT one
  STANDBY ON two {{recovery}} INTO {{sink}};
"""
PROMISED_S = {"RECOVERY 2s": 2.2, "": 2.7}
"""The longest without output; a link that comes and goes may take `FLAPPING_S`."""
FLAPPING_S = 3.0
END_S, FENCED_S = 90.0, 30.0


class Output(Protocol):
    """Where results go, as a reader sees it."""

    sink: str

    def clear(self) -> None: ...

    def last(self) -> int:
        """Something that grows with each result: asked for many times a second."""

    def rows(self) -> list[tuple[int, int, int]]:
        """The position of each result, and its columns."""


class File:
    def __init__(self, folder: Path) -> None:
        self.sink = "jsonl(path = 'out.jsonl') ON source"
        self._path = folder / "out.jsonl"

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def last(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def rows(self) -> list[tuple[int, int, int]]:
        found = map(json.loads, self._path.read_text().splitlines())
        return [(row["_pos"], row["n"], row["m"]) for row in found]


class Table:
    def __init__(self, database: Postgres) -> None:
        self.sink = f"postgres(url = '{database.url}', table = 'out', mode = 'replace')"
        self._connection = psycopg.connect(database.url, autocommit=True)

    def clear(self) -> None:
        self._connection.execute("DROP TABLE IF EXISTS out, anabranch_sink")

    def last(self) -> int:
        return len(self.rows())

    def rows(self) -> list[tuple[int, int, int]]:
        if self._connection.execute("SELECT to_regclass('out')").fetchone() == (None,):
            return []
        return self._connection.execute("SELECT _pos, n, m FROM out ORDER BY _pos").fetchall()


def run(
    progress: Progress,
    keep: Keep,
    recoveries: tuple[str, ...] = tuple(PROMISED_S),
    cases: tuple[str, ...] = CASES,
    sinks: tuple[str, ...] = SINKS,
) -> dict[str, Any]:
    """A row of each case: the longest time without output, what status had promised, whether the
    old primary has given up, and what is wrong with the output."""
    plan = [(one, sink, case) for one in recoveries for sink in sinks for case in cases]
    rows = []
    with ExitStack() as stack:
        cluster = stack.enter_context(SilentCluster(progress, SITES))
        outputs: dict[str, Output] = {"file": File(cluster.folder)}
        if "postgres" in sinks:
            database = Postgres(cluster.machines.address)
            stack.callback(database.remove)
            database.start()
            outputs["postgres"] = Table(database)
        for number, (recovery, sink, case) in enumerate(plan, 1):
            progress(f"Run {number} of {len(plan)}: {recovery or 'default'}, {sink}, {case} …")
            measured = one_run(cluster, case, recovery, outputs[sink])
            rows.append({"case": case, "sink": sink, "recovery": recovery} | measured)
            keep(rows[-1])
    return {"rows": rows}


def one_run(cluster: SilentCluster, case: str, recovery: str, output: Output) -> dict[str, Any]:
    cluster.wait_until_up()
    output.clear()
    cluster.execute(SCRIPT.format(recovery=recovery, sink=output.sink))
    grown: list[float] = []
    with _watched(output, grown):
        status = cluster.wait_for(
            lambda s: any(one.protected for one in s.protection.values()), "protection"
        )
        begun = time.monotonic()
        while not grown:
            time.sleep(0.02)
        time.sleep(max(0.0, CUT_AT_S - (time.monotonic() - begun)))
        before = time.monotonic()
        with _away(cluster, "one", case):
            time.sleep(CUT_S)
        cluster.wait_for(lambda s: task_states(s, "q/sink") == ["done"], f"the end, {case}", END_S)
    gap_s = max((b - a for a, b in pairwise(grown) if b > before), default=0.0)
    taken = cluster.coordinator.status(ask=False).protection["q"].site == "two"
    fenced = _gives_up(cluster, "one") if taken else False
    found = faults(output.rows())
    cluster.execute("DROP QUERY q; DROP STREAM r;")
    return {
        "gap_s": round(gap_s, 3),
        "took_over": taken,
        "fenced": fenced,
        "promised_s": _promised(status),
        **found,
    }


def _gives_up(cluster: SilentCluster, site: str) -> bool:
    """Whether the old primary hears that it is one no more, and stops by itself."""

    def heard(status: Status) -> bool:
        (report,) = [one for one in status.sites if one.site == site]
        return report.state == "up" and all(one.role != "primary" for one in report.tasks)

    try:
        cluster.wait_for(heard, f"{site} runs nothing any more", FENCED_S)
    except TaskError:
        return False
    return True


@contextmanager
def _away(cluster: SilentCluster, name: str, case: str) -> Iterator[None]:
    machines = cluster.machines
    over = threading.Event()

    def flap(away_s: float, there_s: float) -> None:
        while not over.is_set():
            machines.cut(name)
            over.wait(away_s)
            machines.heal(name)
            over.wait(there_s)

    flapping = threading.Thread(target=flap, args=FLAPPING.get(case, ()))
    match case:
        case _ if case in FLAPPING:
            flapping.start()
        case "both ways":
            machines.cut(name)
        case "what it sends":
            machines.mute(name)
        case "what it is sent":
            machines.deafen(name)
        case _:
            cluster.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        over.set()
        if flapping.is_alive():
            flapping.join()
        machines.heal(name)
        cluster.signal(name, signal.SIGCONT)


@contextmanager
def _watched(output: Output, grown: list[float]) -> Iterator[None]:
    """When something came."""
    over = threading.Event()

    def watch() -> None:
        had = 0
        while not over.wait(0.01):
            if (now := output.last()) > had:
                had = now
                grown.append(time.monotonic())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _promised(status: Status) -> dict[str, float]:
    """By the standby, for a machine that vanishes: its limit, and how soon it is noticed."""
    standby = next(one.standby for one in status.tasks() if one.standby)
    tuned = [one.machine_s for one in standby.tuning]
    return {"noticed_s": standby.noticed.machine_s} | ({"recovered_s": max(tuned)} if tuned else {})


FAULTS = ("lost", "repeated", "wrong")


def faults(rows: list[tuple[int, int, int]]) -> dict[str, int]:
    """What is wrong with the whole output, by position."""
    expected = [(n, 2 * n) for n in range(ROWS) if n % 3]
    positions = [row[0] for row in rows]
    return {
        "lost": len(set(range(1, len(expected) + 1)) - set(positions)),
        "repeated": len(positions) - len(set(positions)),
        "wrong": sum(
            not (0 < at <= len(expected)) or expected[at - 1] != (n, m) for at, n, m in rows
        ),
    }


def promised_s(row: dict[str, Any]) -> float:
    flapping = FLAPPING_S - PROMISED_S["RECOVERY 2s"] if row["case"] in FLAPPING else 0.0
    return PROMISED_S[row["recovery"]] + flapping


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if an output is not that of a run without a cut, or came too late."""
    for row in result["rows"]:
        what = f"{row['recovery'] or 'default'}, {row['sink']}, {row['case']}"
        if any(row[name] for name in FAULTS):
            raise TaskError(f"{what}: " + ", ".join(f"{row[one]} {one}" for one in FAULTS))
        if row["gap_s"] > promised_s(row):
            raise TaskError(f"{what}: no output for {row['gap_s']:g} s")
        if row["took_over"] and not row["fenced"]:
            raise TaskError(f"{what}: the old primary goes on")
