"""What a standby costs and what it is worth, on real sites: the standby paper's figures.

`source` (N_u) sends 1000 tuples of 56 bytes a second to `centre` (N), whose standby is at `centre2`
(N'), and `desk` (N_d) writes the results. All but the last are processes; whoever is primary is
killed. A third worker stands by next, while the Spark of the one that was killed starts again.
`source40` and `source60` are sources behind links that other traffic leaves little of.

Batch sizes are changed while a query runs. Every output is compared with a reference, whole.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from anabranch.config.model import LinkConfig
from anabranch.plan.service_levels import UNLIMITED
from bench.standby import rates as standby_rates
from bench.standby import spark as standby_spark
from bench.standby import steps as standby_steps
from bench.standby import verdict as standby_verdict
from bench.standby.queries import AGGREGATION, SELECTION, Operator
from bench.standby.site import WORKERS, Deployed
from bench.systems.cluster import FailingCluster
from bench.systems.system import Keep, Progress

LINK = 250_000.0
"""Bytes a second of a link that stands for the paper's 125 MB/s: 3½ times the stream, as it is on
the wire. Background load takes the same share of it as there."""
BUSY = {"source40": 40 / 125, "source60": 60 / 125}
ALL = (1, *range(20, 501, 20), UNLIMITED)
SOME = (1, 100, 200, 300, 400, 500, UNLIMITED)
FEW = (1, 100, 300, UNLIMITED)
Row = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """One query and the batch sizes to measure: all in health, and those in `kills` by failing so
    many times."""

    operator: Operator
    source: str
    batches: tuple[int, ...]
    kills: dict[int, int]
    compress: bool = False

    @property
    def name(self) -> str:
        method = "compressed" if self.compress else "plain"
        return f"{self.operator.name}, {method}, {self.source}"


def series(quick: bool) -> list[Series]:
    if quick:
        once = dict.fromkeys((1, 100, UNLIMITED), 1)
        return [
            Series(SELECTION, "source", FEW, once),
            Series(SELECTION, "source", FEW, {100: 1}, compress=True),
            Series(AGGREGATION, "source", FEW, once),
            Series(AGGREGATION, "source60", FEW, {UNLIMITED: 1}),
        ]
    some = dict.fromkeys((1, 100, 300, 500, UNLIMITED), 2)
    few = dict.fromkeys((100, UNLIMITED), 2)
    return [
        Series(SELECTION, "source", ALL, some),
        Series(SELECTION, "source", ALL, few, compress=True),
        Series(AGGREGATION, "source", ALL, some),
        Series(AGGREGATION, "source40", SOME, few),
        Series(AGGREGATION, "source60", SOME, few),
    ]


class Clock:
    """Says what is being measured, and about how long everything takes yet."""

    def __init__(self, progress: Progress, total_s: float) -> None:
        self._progress = progress
        self._total_s = total_s
        self._planned_s = 0.0
        self._begun = time.monotonic()

    def step(self, what: str, planned_s: float) -> None:
        """Begin what was planned to take so long."""
        elapsed = time.monotonic() - self._begun
        pace = max(1.0, elapsed / self._planned_s) if self._planned_s > 20 else 1.0
        left = pace * (self._total_s - self._planned_s) / 60
        self._planned_s += planned_s
        self._progress(f"{what}; about {max(left, 1):.0f} min to go …")


@dataclass(frozen=True)
class Times:
    """Seconds of what is measured."""

    window: float
    spark: float
    rates: float
    step: float

    def total(self, planned: list[Series]) -> float:
        healthy = sum(len(one.batches) for one in planned) * (self.window + 3)
        kills = sum(sum(one.kills.values()) for one in planned) * KILL_S
        rest = self.spark + self.rates + standby_steps.PHASES * self.step
        return healthy + kills + START_S + WARM_S * len(planned) + rest


PAUSE_S = 2.0
"""On this one machine a Spark that starts takes from the others what they need to recover."""
KILL_S = 35.0
WARM_S = 8.0
START_S = 60.0
QUICK = Times(window=3.0, spark=45.0, rates=40.0, step=12.0)
FULL = Times(window=4.0, spark=60.0, rates=90.0, step=20.0)


def run(progress: Progress, keep: Keep, quick: bool = False, seed: int = 1) -> dict[str, Any]:
    """`rows`, and what follows from them; see `standby_verdict`. What is found goes to `keep` at
    once, too."""
    planned, times = series(quick), QUICK if quick else FULL
    clock = Clock(progress, times.total(planned))
    rng = random.Random(seed)
    rows: list[Row] = []
    clock.step("Spark killed and restarted from its checkpoint", times.spark)
    keep(spark := standby_spark.run())
    clock.step("Starting six sites", START_S)
    here, apart = ("desk", *BUSY), ("source", *WORKERS)
    with FailingCluster(here, apart, _quiet, links=links(), pause_s=PAUSE_S) as cluster:
        for one in planned:
            rows += _measure(cluster, one, times, clock, rng, keep)
        clock.step("Throughput", times.rates)
        keep(rates := standby_rates.run(cluster, quick))
        clock.step("Rate and cost in steps", standby_steps.PHASES * times.step)
        steps = standby_steps.run(cluster, times.step)
    return standby_verdict.result(rows, spark, rates, steps)


def _quiet(text: str) -> None:
    """What the sites say while they start."""


def links() -> Iterator[LinkConfig]:
    for source, load in BUSY.items():
        for worker in WORKERS:
            yield LinkConfig(sender=source, receiver=worker, bandwidth=LINK * (1 - load))


def _measure(
    cluster: FailingCluster,
    one: Series,
    times: Times,
    clock: Clock,
    rng: random.Random,
    keep: Keep,
) -> list[Row]:
    """A row per batch size, by size."""
    codec = " COMPRESS zlib" if one.compress else ""
    # A standby that has nothing to do leaves its processor to the sites that start.
    deployed = Deployed(cluster, one.operator, one.source, f"BATCH UNLIMITED{codec}")
    clock.step(f"{one.name}: warming up", WARM_S)
    time.sleep(WARM_S)
    rows = []
    # In no order: JVMs get faster all the time, which must not look like an effect of b.
    for batch in rng.sample(one.batches, len(one.batches)):
        clock.step(f"{one.name}: overhead at b = {show_batch(batch)}", times.window + 3)
        row = _labels(one, batch) | deployed.healthy(batch, times.window)
        if one.source in BUSY:  # shares its process with the experiment itself
            row |= {"cpu": None, "cpu_source": None}
        kills = []
        count = one.kills.get(batch, 0)
        for number in range(count):
            clock.step(f"{one.name}: kill {number + 1} at b = {show_batch(batch)}", KILL_S)
            # Spread over a heartbeat's interval: where in it a kill falls matters most.
            kills.append(deployed.fail(batch, rng, (number + 0.5) / count))
        rows.append(row | ({"kills": kills} | _means(kills) if kills else {}))
        keep(rows[-1])
    outputs = deployed.close()
    rows.sort(key=lambda row: row["b"])
    return [row | {"outputs_checked": outputs} for row in rows]


def _means(kills: list[Row]) -> Row:
    names = ("recovery_s", "gap_s", "model_recovery_s")
    return {name: fmean(kill[name] for kill in kills) for name in names}


def _labels(one: Series, batch: int) -> Row:
    scheme = "SASC" if one.compress else {1: "AS", UNLIMITED: "UB"}.get(batch, "SAS")
    load = round(BUSY.get(one.source, 0.0) * 125)
    return {
        "scheme": scheme,
        "operator": one.operator.name,
        "load": load,
        "b": batch,
        "compressed": one.compress,
    }


def show_batch(batch: int) -> str:
    return "∞" if batch == UNLIMITED else str(batch)
