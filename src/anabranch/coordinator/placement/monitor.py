"""What the system looks like over time: latencies, rates, selectivities and load, sampled from what
sites report. The last samples are kept in the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import Sample
from anabranch.link.reports import SiteReport, TaskReport
from anabranch.placement.network import NetworkSamples
from anabranch.plan.costs import Measured, Rates, TaskCost

KEPT = 60
RECENT = 12
"""Samples that count for what runs: rates and loads, and the network when it is placed again."""
ENOUGH = 8
"""Instances of a task from which on what it was measured to cost counts."""
FEWEST_ROWS = 20
"""Tuples that a selectivity must have been seen with."""


def sample_of(now: float, reports: Sequence[SiteReport]) -> Sample:
    """From what sites report. Of a task that stands by as well, its primary counts."""
    latency = {
        report.site: {other: trip / 2 for other, trip in report.round_trips.items()}
        for report in reports
        if report.round_trips
    }
    rates: dict[str, float] = {}
    shares: dict[str, float] = {}
    loads: dict[str, float] = {}
    for report in reports:
        rates |= {source.stream: source.rate for source in report.sources}
        for task in _primaries(report):
            if task.output:
                rates[task.output] = task.rate_out
            if task.rows_in >= FEWEST_ROWS:
                shares[task.name] = task.rows_out / task.rows_in
            loads[task.name] = load_of(task)
    return Sample(now, latency, rates, shares, loads)


def measured_by(reports: Iterable[SiteReport]) -> Measured:
    """What tasks cost and how much comes, of what has run long enough."""
    costs: dict[str, TaskCost] = {}
    rates: dict[str, float] = {}
    for report in reports:
        rates |= {source.stream: source.rate for source in report.sources if source.rate}
        for task in _primaries(report):
            if task.output and task.rate_out:
                rates[task.output] = task.rate_out
            if task.instances >= ENOUGH:
                fixed, per_tuple = task.fixed_ms / 1e3, task.per_tuple_us / 1e6
                costs[task.name] = TaskCost(fixed, per_tuple, "measured")
    return Measured(costs, rates)


def _primaries(report: SiteReport) -> list[TaskReport]:
    return [task for task in report.tasks if task.role == "primary"]


def load_of(task: TaskReport) -> float:
    """The part of a second that it computes in a second. Instances are as large as what comes
    while one runs, but take a tuple at least."""
    size = max(1.0, task.rows_in / task.instances) if task.instances else 1.0
    return min(1.0, task.rate_in * (task.per_tuple_us / 1e6 + task.fixed_ms / 1e3 / size))


class Monitor:
    def __init__(self, catalog: Catalog, interval_s: float) -> None:
        self._catalog = catalog
        self._interval_s = interval_s
        self._samples = [Sample(**json.loads(body)) for body in catalog.samples()]
        self._last = 0.0

    @property
    def samples(self) -> Sequence[Sample]:
        """The oldest first."""
        return tuple(self._samples)

    def due(self, now: float) -> bool:
        return now - self._last >= self._interval_s

    def add(self, now: float, sample: Sample) -> None:
        """Keep it, and forget the oldest if there are too many."""
        self._last = now
        self._samples = [*self._samples, sample][-KEPT:]
        self._catalog.add_sample(json.dumps(asdict(sample)), KEPT)

    def network(
        self, sites: Sequence[str], capacity: Mapping[str, float] | None = None, last: int = KEPT
    ) -> NetworkSamples:
        """Between these sites, in this order, as far as the `last` samples have it."""
        measured = [one for one in self._samples if one.latency_s][-last:] or [Sample(0.0)]
        latency = np.full((len(measured), len(sites), len(sites)), np.nan)
        for matrix, sample in zip(latency, measured, strict=True):
            for m, sender in enumerate(sites):
                known = sample.latency_s.get(sender, {})
                matrix[m] = [known.get(receiver, np.nan) for receiver in sites]
        return NetworkSamples(tuple(sites), latency, capacity or {})

    def latency(self) -> dict[tuple[str, str], float]:
        """Seconds between sites: the median of the last samples that have the pair."""
        found: dict[tuple[str, str], list[float]] = {}
        for sample in self._samples[-RECENT:]:
            for sender, known in sample.latency_s.items():
                for receiver, seconds in known.items():
                    found.setdefault((sender, receiver), []).append(seconds)
        return {pair: float(np.median(seconds)) for pair, seconds in found.items()}

    def rates(self) -> Rates:
        """Means over the last samples that have any."""
        recent = self._samples[-RECENT:]
        return Rates(
            _means([{k: v for k, v in one.rates.items() if v > 0} for one in recent]),
            _means([one.selectivities for one in recent[-1:]]),
        )

    def loads(self) -> dict[str, float]:
        return _means([one.loads for one in self._samples[-RECENT:]])


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in found for name in one)
    return {name: float(np.mean([one[name] for one in found if name in one])) for name in names}
