"""Kafka and PostgreSQL that are started after the system that needs them: what becomes of it?

Orders go from a topic through two queries, into a table and into another topic. Then the system is
told to stop, or everything is killed, Kafka and PostgreSQL too; `anabranch up` is started, and its
services only some time later. In the end all that was written is compared with what should be.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from anabranch.errors import TaskError
from bench.edges.orders import FAULTS, Orders, Results, faults, rewritten
from bench.systems.installed import Installed
from bench.systems.kafka import Broker
from bench.systems.postgres import Postgres
from bench.systems.system import Keep, Progress, Status

APART, TOGETHER = 'isolation = "process"\n', ""
CLUSTER = """
[defaults]
master = "local[1]"
conf = {{ "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1" }}
[site.shop]
{how}
[site.centre]
{how}
"""
FIRST_S, MORE_S, END_S, SAID_S = 120.0, 180.0, 180.0, 90.0
MORE = 20
"""Results of each query that show that it goes on."""


@dataclass
class Shop:
    kafka: Broker
    postgres: Postgres
    orders: Orders
    results: Results
    system: Installed

    def start(self) -> None:
        self.system.up()
        self.system.wait_until_up()
        self.system.execute(self.results.script())
        self.wait_for_more((0, 0), FIRST_S)

    def wait_for_more(self, before: tuple[int, int], timeout_s: float) -> dict[str, float]:
        """Seconds until each query has given more than there was; a TaskError if one does not."""
        begun, seconds = time.monotonic(), dict[str, float]()
        while len(seconds) < len(before):
            if time.monotonic() - begun > timeout_s:
                status = self.system.status()
                missing = {"totals", "large"} - set(seconds)
                raise TaskError(f"no results of {missing}", remedy=str(status and status.states))
            counts = self.results.counts()
            for name, had, has in zip(("totals", "large"), before, counts, strict=True):
                if has >= had + MORE:
                    seconds.setdefault(name, round(time.monotonic() - begun, 1))
            time.sleep(0.1)
        return seconds

    def stop(self) -> None:
        """In order: what was sent has been read, or is in the topic."""
        self.orders.pause()
        self.system.down()
        self.postgres.stop()
        self.kafka.stop()

    def kill(self, chance: random.Random) -> None:
        """All processes at once, in any order, while orders come."""
        strokes = [self.system.kill, self.postgres.kill, self.kafka.kill]
        chance.shuffle(strokes)
        for stroke in strokes:
            stroke()
        self.orders.hold()

    def waits_for(self, seconds: float) -> list[str]:
        """Start the system; what status says in that time, and until it has named both services."""
        begun = time.monotonic()
        self.system.up()
        said: dict[str, None] = {}
        while (since := time.monotonic() - begun) < seconds or not _named(said):
            said |= dict.fromkeys(reasons(self.system.status()))
            if since > seconds + SAID_S:
                break
            time.sleep(0.5)
        return list(said)

    def serve(self, chance: random.Random) -> None:
        starts = [self.postgres.start, self.kafka.start]
        chance.shuffle(starts)
        for start in starts:
            start()
        self.orders.go_on()


def reasons(status: Status | None) -> list[str]:
    """What is said of each query and stream, and of what fails and is tried again; without the time
    for which something has been waited for so far."""
    if status is None:
        return []
    troubles = [one for site in status.sites for one in site.troubles] + list(status.troubles)
    return [
        *(
            f"{name}: {one.state}: {re.sub(' [(][0-9a-z ]+so far[)]', '', one.reason)}"
            for name, one in status.states.items()
        ),
        *(f"{one.name}: {one.error}" for one in troubles if not one.goes_on),
    ]


def _named(said: Iterable[str]) -> bool:
    told = " ".join(said)
    return "Kafka" in told and "postgres" in told


@contextmanager
def shop(progress: Progress, *, apart: bool, state_mb: int = 0) -> Iterator[Shop]:
    """One that gives results."""
    with ExitStack() as stack:
        progress("Starting Kafka and PostgreSQL …")
        kafka, postgres = Broker(), Postgres(synchronous_commit="on")
        stack.callback(kafka.remove)
        stack.callback(postgres.remove)
        kafka.start()
        postgres.start()
        orders = stack.enter_context(closing(Orders(kafka)))
        results = stack.enter_context(closing(Results(orders, postgres)))
        system = Installed(CLUSTER.format(how=APART if apart else TOGETHER), state_mb)
        stack.callback(system.close)
        made = Shop(kafka, postgres, orders, results, system)
        progress("Starting the system …")
        made.start()
        yield made


def run(
    progress: Progress,
    keep: Keep,
    *,
    away_s: float = 75.0,
    kills: int = 10,
    stops: int = 1,
    seed: int = 1,
    apart: bool = True,
) -> dict[str, Any]:
    """A row of each stop and kill: what was waited for, how soon results came after both services
    were back, and how many old rows were no longer as they were; then what is wrong in all."""
    chance = random.Random(seed)
    plan = ["down"] * stops + ["kill"] * kills
    rows = []
    with shop(progress, apart=apart) as made:
        for number, how in enumerate(plan, 1):
            progress(f"{number} of {len(plan)}: {how} …")
            rows.append(_once(made, how, away_s, chance))
            keep(rows[-1])
        progress("Reading everything …")
        whole = end(made)
    return {"away_s": away_s, "rows": rows} | whole


def _once(made: Shop, how: str, away_s: float, chance: random.Random) -> dict[str, Any]:
    time.sleep(chance.uniform(1.0, 5.0))
    before = made.results.read()
    if how == "down":
        made.stop()
    else:
        made.kill(chance)
    said = made.waits_for(away_s)
    made.serve(chance)
    goes_on_s = made.wait_for_more(made.results.counts(), MORE_S)
    after = made.results.read()
    found = faults(after, made.results.expected(), complete=False)
    found["rewritten"] = rewritten(before, after)
    return {"how": how, "waited_for": said, "goes_on_s": goes_on_s, **found}


def end(made: Shop) -> dict[str, Any]:
    made.orders.end()
    expected = made.results.expected()
    wanted = len(expected[0]), len(expected[1])
    deadline = time.monotonic() + END_S
    while made.results.counts() < wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    found = made.results.read()
    return {
        "results": [len(found.totals), len(found.large)],
        **faults(found, expected, complete=True),
    }


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if anything was lost, repeated or written anew, or was waited for in
    silence."""
    for row in [*result["rows"], result]:
        if any(row.get(name) for name in FAULTS):
            raise TaskError(", ".join(f"{row[one]} {one}" for one in FAULTS if row.get(one)))
    for row in result["rows"]:
        if not _named(row["waited_for"]):
            raise TaskError(f"{row['how']}: status did not say what was waited for")
