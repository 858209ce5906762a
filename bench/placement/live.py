"""Placement for real: eight sites whose network changes while the paper's scenario runs.

Three rooms and a centre are far from each other; four sites in between are not all near, and which
of them is near changes. No query has an AT: the system places them, and moves them when that pays.
The pocket is placed once and stays.
"""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig, LinkConfig
from anabranch.config.model import PlacementSettings
from anabranch.coordinator.base.reports import Moved
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.language.source import Script
from anabranch.link.messages import Emulate
from anabranch.plan.catalog import PocketDef, QueryDef
from bench.systems.system import Progress, System

ROOMS = ("room1", "room2", "room3")
CENTRE = "centre"
BETWEEN = ("east", "north", "south", "west")
SITES = (*ROOMS, CENTRE, *BETWEEN)
NEAR_S, FAR_S = 0.020, 0.200
EVEN_S = 0.005
"""Between all sites where only moves are looked at: a pause is no shorter than a few such trips."""
SOURCE = (
    "CREATE STREAM Sensor{n} (Temp DOUBLE) FROM rate(tps = {tps}, rows = {rows}{start},"
    " Temp = '{temp}') AT room{n};"
)
TEMPERATURES = ("30 + value * 7 % 27", "29 + value * 5 % 26", "31 + value * 11 % 25")
QUERIES = """
CREATE QUERY fire AS
  MASTER Sensor1 SELECT Sensor1.Temp AS t1, Sensor2.Temp AS t2, Sensor3.Temp AS t3
  FROM Sensor1[{window}], Sensor2[{window}], Sensor3[{window}]
  WHERE Sensor1.Temp > 50 AND Sensor2.Temp > 50 AND Sensor3.Temp > 50
  INTO jsonl(path = 'fire.jsonl') ON centre;
CREATE POCKET FireAlarm FROM python(class = 'fire_alarm:FireAlarm');
CREATE QUERY told AS SELECT message FROM alarm INTO jsonl(path = 'told.jsonl') ON centre;
"""
POCKET = """
from anabranch import Pocket


class FireAlarm(Pocket):
    query = "SELECT Temp FROM Sensor2 WHERE Temp > 53"
    output = "CREATE STREAM alarm (message STRING)"

    def row(self, row):
        yield {"message": f"fire: {row['Temp']:.0f} °C"}
"""
OUTPUTS = ("fire", "told")
LAST_S = 5.0
"""What is measured just before something changes counts as before it."""


def script(tps: int, rows: int, window: str, *, start: bool) -> str:
    """`start` gives event times of their own, so that every run has the same."""
    begin = ", start = 0" if start else ""
    sources = [
        SOURCE.format(n=n, tps=tps, rows=rows, start=begin, temp=temp)
        for n, temp in enumerate(TEMPERATURES, 1)
    ]
    return "\n".join(sources) + QUERIES.format(window=window)


def delays(near: str | None) -> dict[str, dict[str, float]]:
    """Seconds between all sites when `near` is the one in between that all are near to."""

    def delay(a: str, b: str) -> float:
        if near is None:
            return EVEN_S
        return NEAR_S if near in (a, b) else FAR_S

    return {a: {b: delay(a, b) for b in SITES if b != a} for a in SITES}


class Moving(System):
    """All sites in this process, around one Spark session."""

    def __init__(self, spark: SparkSession, near: str | None) -> None:
        links = tuple(
            LinkConfig(sender=a, receiver=b, delay_us=int(1e6 * delay))
            for a, row in delays(near).items()
            for b, delay in row.items()
        )
        super().__init__(
            ClusterConfig.of_sites(SITES).model_copy(
                update={"links": links, "placement": PlacementSettings(sample_us=1_000_000)}
            ),
            spark,
        )

    def change(self, near: str) -> None:
        for site in SITES:
            self.coordinator.sites.peer(site).send(Emulate(delays(near)))

    def play(self, text: str) -> None:
        (self.folder / "fire_alarm.py").write_text(POCKET)
        self.execute(text)

    def nodes(self) -> dict[str, str]:
        """The queries' nodes and where they are."""
        queries = [
            one for one in self.coordinator.plan(Script(""), "") if isinstance(one, QueryDef)
        ]
        return {node.name: node.site for query in queries for node in query.nodes}

    def pocket(self) -> str:
        (pocket,) = [
            one for one in self.coordinator.plan(Script(""), "") if isinstance(one, PocketDef)
        ]
        return pocket.site

    def sources_run(self) -> bool:
        return any(one.state != "ended" for one in self.coordinator.status(ask=False).sources())

    def lines(self) -> dict[str, list[str]]:
        """Of every output."""
        paths = {name: self.folder / f"{name}.jsonl" for name in OUTPUTS}
        return {
            name: path.read_text().splitlines() if path.exists() else []
            for name, path in paths.items()
        }


class Costs(threading.Thread):
    """Σ rate · latency² of where everything is, by the newest sample, every second."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(daemon=True)
        self._coordinator = coordinator
        self._over = threading.Event()
        self.series: list[tuple[float, float]] = []
        self.start()

    def run(self) -> None:
        while not self._over.wait(1.0):
            self.series.append((time.time(), self._coordinator.cost()))

    def close(self) -> None:
        self._over.set()
        self.join()

    def within(self, begin: float, end: float) -> float | None:
        found = [cost for at, cost in self.series if begin <= at < end]
        return median(found) if found else None


class Tail(threading.Thread):
    """When each result was in the file, and how old it was then."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._over = threading.Event()
        self.arrivals: list[tuple[float, float]] = []
        self.start()

    def run(self) -> None:
        read = 0
        while not self._over.wait(0.005):
            if not self._path.exists():
                continue
            text = self._path.read_text()
            now = time.time()
            whole, _, _ = text[read:].rpartition("\n")
            for line in whole.splitlines():
                self.arrivals.append((now, now - json.loads(line)["_ts"] / 1e6))
            read += len(whole) + 1 if whole else 0

    def close(self) -> None:
        self._over.set()
        self.join()

    def median_ms(self, begin: float, end: float) -> float | None:
        ages = [age for at, age in self.arrivals if begin <= at < end]
        return 1e3 * median(ages) if ages else None


def run(
    spark: SparkSession, progress: Progress, phases: int, seconds: float, moves: int, seed: int
) -> dict[str, Any]:
    followed = changing(spark, progress, phases, seconds)
    return followed | exact(spark, progress, moves, random.Random(seed))


def changing(
    spark: SparkSession, progress: Progress, phases: int, seconds: float
) -> dict[str, Any]:
    """Each phase another site is near: what that costs before and after operators have moved."""
    nears = [BETWEEN[i % len(BETWEEN)] for i in range(phases)]
    rows = []
    with closing(Moving(spark, nears[0])) as system:
        progress("Measuring the network …")
        time.sleep(8)
        system.play(script(20, 10**6, "1s", start=False))
        first, pocket = system.nodes(), system.pocket()
        with (
            closing(Tail(system.folder / "fire.jsonl")) as tail,
            closing(Costs(system.coordinator)) as costs,
        ):
            for near in nears:
                progress(f"{near} is near …")
                rows.append(_phase(system, tail, costs, near, seconds))
        stayed = system.pocket() == pocket
    begun = tail.arrivals[0][0] if tail.arrivals else 0.0
    return {
        "placed": first,
        "pocket": pocket,
        "pocket_stayed": stayed,
        "rows": rows,
        "begun": begun,
        "latencies": [(at - begun, age) for at, age in tail.arrivals],
        "costs": [(at - begun, cost) for at, cost in costs.series],
    }


def _phase(system: Moving, tail: Tail, costs: Costs, near: str, seconds: float) -> dict[str, Any]:
    system.change(near)
    begun = time.time()
    time.sleep(seconds)  # until what is measured is mostly of the network as it is now
    asked = time.time()
    found = system.coordinator.replan(dry_run=False)
    done = time.time()
    time.sleep(max(LAST_S, seconds / 2))
    before, after = (asked - LAST_S, asked), (done, time.time())
    return {
        "near": near,
        "at": system.nodes(),
        "begun": begun,
        "replanned": done,
        "cost_before": costs.within(*before),
        "cost_after": costs.within(*after),
        "expected": {"before": found.before, "after": found.after},
        "moves": [one.__dict__ for one in found.moves],
        "latency_before_ms": tail.median_ms(*before),
        "latency_after_ms": tail.median_ms(*after),
    }


def exact(
    spark: SparkSession, progress: Progress, moves: int, rng: random.Random
) -> dict[str, Any]:
    """Random moves of any node, several at once, under load: the outputs against those of a run
    without moves."""
    text = script(200, 200 * max(40, moves * 3), "100ms", start=True)
    outputs: list[dict[str, list[str]]] = []
    done: list[Moved] = []
    for moving in (True, False):
        with closing(Moving(spark, None)) as system:
            system.play(text)
            time.sleep(3)
            while moving and len(done) < moves and system.sources_run():
                progress(f"{len(done)} of {moves} moves …")
                done += _round(system, rng, moves - len(done))
            progress("Waiting for the last results …")
            system.wait(None)
            outputs.append(system.lines())
    pauses = [one.pause_ms for one in done if one.pause_ms is not None]
    return {
        "moved": sum(not one.problem for one in done),
        "failed_moves": [one.problem for one in done if one.problem],
        "results": {name: len(lines) for name, lines in outputs[1].items()},
        "identical": outputs[0] == outputs[1],
        "pause_ms": {"p50": median(pauses), "max": max(pauses)} if pauses else None,
    }


def _round(system: Moving, rng: random.Random, most: int) -> list[Moved]:
    """Some nodes, to sites where they are not."""
    nodes = system.nodes()
    chosen = rng.sample(sorted(nodes), rng.randint(1, min(most, len(nodes))))
    wanted = [
        Moved(name, nodes[name], rng.choice([one for one in SITES if one != nodes[name]]))
        for name in chosen
    ]
    return system.coordinator.move_all(wanted)
