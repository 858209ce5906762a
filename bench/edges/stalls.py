"""Something stands still for a while and comes back by itself: a full disk, a hung database, a
paused broker. Is anything lost or repeated, does `status` say what is waited for, and does all go
on without a word?

The orders of `late` go on meanwhile. The state folder is a file system of its own in memory, small
enough to be filled in a moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from anabranch.errors import TaskError
from bench.edges.late import MORE_S, Shop, end, reasons, shop
from bench.edges.orders import FAULTS, faults, rewritten
from bench.systems.installed import stopped
from bench.systems.system import Keep, Progress

CASES = {
    "disk": ("No space left",),
    "backend": ("totals: sink away",),
    "database": ("totals: sink away",),
    "broker": ("orders waits",),
}
"""What stands still, and what `status` has to say meanwhile."""
FOLDER_MB = 64
QUIET_S = 3.0


def run(
    progress: Progress,
    keep: Keep,
    cases: tuple[str, ...] = tuple(CASES),
    *,
    seconds: float = 20.0,
    seed: int = 1,
) -> dict[str, Any]:
    """A row of each case: what was said meanwhile, how soon results came afterwards, and what is
    wrong with those that there are; then what is wrong with all."""
    chance = random.Random(seed)
    rows = []
    with shop(progress, apart=True, state_mb=FOLDER_MB) as made:
        for case in cases:
            progress(f"{case} …")
            time.sleep(chance.uniform(1.0, 3.0))
            rows.append({"case": case} | _once(made, _STALLS[case], seconds))
            keep(rows[-1])
        progress("Reading everything …")
        whole = end(made)
    return {"seconds": seconds, "rows": rows} | whole


def _once(made: Shop, stall: Callable[[Shop], Any], seconds: float) -> dict[str, Any]:
    before = made.results.read()
    said: dict[str, None] = {}
    with stall(made):
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            status = made.system.status()
            said |= dict.fromkeys(reasons(status))
            time.sleep(0.5)
    goes_on_s = made.wait_for_more(made.results.counts(), MORE_S)
    after = made.results.read()
    found = faults(after, made.results.expected(), complete=False)
    found["rewritten"] = rewritten(before, after)
    return {"said": list(said), "goes_on_s": goes_on_s, **found}


@contextmanager
def _full_disk(made: Shop) -> Iterator[None]:
    """Nothing can be created or changed meanwhile, and nothing of it is there afterwards."""
    with made.system.full():
        time.sleep(QUIET_S)
        with suppress(TaskError):
            made.system.execute("CREATE QUERY more AS SELECT id FROM large;")
            raise AssertionError("a query was created on a full disk")
        yield
    made.system.execute("CREATE QUERY more AS SELECT id FROM large;")
    made.system.execute("DROP QUERY more;")


@contextmanager
def _hung_backend(made: Shop) -> Iterator[None]:
    """The server's process that serves the sink: all others answer."""
    found = made.postgres.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'anabranch %'"
    )
    with stopped([psutil.Process(pid) for (pid,) in found]):
        yield


@contextmanager
def _hung_database(made: Shop) -> Iterator[None]:
    with stopped(made.postgres.processes()):
        yield


@contextmanager
def _paused_broker(made: Shop) -> Iterator[None]:
    made.orders.pause()
    with stopped(made.kafka.processes()):
        yield
    made.orders.go_on()


_STALLS = {
    "disk": _full_disk,
    "backend": _hung_backend,
    "database": _hung_database,
    "broker": _paused_broker,
}


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if anything was lost, repeated or written anew, or was waited for in
    silence."""
    for row in [*result["rows"], result]:
        if any(row.get(name) for name in FAULTS):
            raise TaskError(", ".join(f"{row[one]} {one}" for one in FAULTS if row.get(one)))
    for row in result["rows"]:
        told = " ".join(row["said"])
        if missing := [one for one in CASES[row["case"]] if one not in told]:
            raise TaskError(f"{row['case']}: status did not say {missing}", remedy=told)
