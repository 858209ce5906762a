"""What the system looks like over time: latencies, rates, selectivities and load, sampled from what
sites report. They are kept in the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Literal

import numpy as np

from anabranch.config.model import PlacementSettings
from anabranch.coordinator.base.catalog import Catalog, Kind
from anabranch.coordinator.base.reports import Sample
from anabranch.coordinator.placement.history import SampleHistory
from anabranch.link.reports import SiteReport, TaskReport
from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Rate
from anabranch.plan.costs import Measured, Rates, TaskCost

Horizon = Literal["ever", "lately", "now"]
"""By all samples that are kept, for what is to stay; by the newest, and what comes next by earlier
days, for what may move again; or by the newest one."""
KINDS: tuple[Kind, ...] = ("sample", "period")
SAME_S = 0.001
"""Two sites are at least so far apart: what is less says more of the moment than of the network."""
ENOUGH = 8
"""Instances of a task from which on what it was measured to cost counts."""
FEWEST_ROWS = 20
"""Tuples that a selectivity must have been seen with."""


def sample_of(now: float, reports: Sequence[SiteReport]) -> Sample:
    """A sample of what sites report. For a task that also stands by, its primary counts."""
    latency = {
        report.site: {other: trip / 2 for other, trip in report.round_trips.items()}
        for report in reports
        if report.round_trips
    }
    found = Sample(now, latency)
    for report in reports:
        found.speeds[report.site] = report.speed
        if report.bandwidth:
            found.bandwidth[report.site] = dict(report.bandwidth)
        found.rates.update({source.stream: source.rate for source in report.sources})
        for task in report.tasks:
            _add(found, report, task)
    return found


def _add(sample: Sample, report: SiteReport, task: TaskReport) -> None:
    if task.role != "primary":
        sample.standbys[report.site] = sample.standbys.get(report.site, 0.0) + load_of(task)
        return
    if task.output:
        sample.rates[task.output] = task.rate_out
    if task.rows_in >= FEWEST_ROWS:
        sample.selectivities[task.name] = task.rows_out / task.rows_in
    sample.loads[task.name] = load_of(task) * report.speed


def measured_by(reports: Iterable[SiteReport]) -> Measured:
    """What tasks cost and how many tuples come, for those that have run long enough."""
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
    """The fraction of each second that it computes. An instance takes what comes while another
    runs, but at least a tuple.
    """
    size = max(1.0, task.rows_in / task.instances) if task.instances else 1.0
    return min(1.0, task.rate_in * (task.per_tuple_us / 1e6 + task.fixed_ms / 1e3 / size))


class Monitor:
    def __init__(self, catalog: Catalog, asked: PlacementSettings) -> None:
        self._catalog = catalog
        self._asked = asked
        self._history = SampleHistory(asked.recent, asked.samples, asked.period_us / 1e6)
        kept = ([Sample(**json.loads(one)) for one in catalog.samples(kind)] for kind in KINDS)
        self._history.restore(*kept)
        self._last = 0.0

    @property
    def samples(self) -> Sequence[Sample]:
        """Periods, then single samples, the oldest first."""
        return self._history.all

    def due(self, now: float) -> bool:
        return now - self._last >= self._asked.sample_us / 1e6

    def add(self, now: float, sample: Sample) -> None:
        """Keeps the sample, and forgets the oldest if there are too many."""
        self._last = now
        over = self._history.add(sample)
        if over:
            self._catalog.add_sample("period", json.dumps(asdict(over)), self._asked.samples)
        self._catalog.add_sample("sample", json.dumps(asdict(sample)), self._asked.recent)

    def chosen(self, horizon: Horizon) -> Sequence[Sample]:
        """The samples by which something is placed; at least one."""
        history = self._history
        found = {
            "ever": history.all,
            "lately": (*history.ahead, *history.recent),
            "now": history.recent[-1:],
        }[horizon]
        return found or (Sample(0.0),)

    def network(
        self,
        sites: Sequence[str],
        horizon: Horizon = "ever",
        capacity: Mapping[str, float] | None = None,
    ) -> NetworkSamples:
        """Between these sites, in this order, as far as it was measured. Of their capacity what
        stands by there takes its part."""
        samples = self.chosen(horizon)
        latency = np.full((len(samples), len(sites), len(sites)), np.nan)
        for matrix, sample in zip(latency, samples, strict=True):
            for m, sender in enumerate(sites):
                known = sample.latency_s.get(sender, {})
                matrix[m] = [known.get(receiver, np.nan) for receiver in sites]
        recent = self._history.recent
        taken = _means([one.standbys for one in recent])
        return NetworkSamples(
            tuple(sites),
            np.maximum(latency, SAME_S),
            {site: most - taken.get(site, 0.0) for site, most in (capacity or {}).items()},
            _means([one.speeds for one in recent]),
            _pairs([one.bandwidth for one in recent]),
        )

    def latency(self) -> dict[tuple[str, str], float]:
        """Seconds between sites: the median of the last samples that have the pair."""
        found: dict[tuple[str, str], list[float]] = {}
        for sample in self._history.recent:
            for sender, known in sample.latency_s.items():
                for receiver, seconds in known.items():
                    found.setdefault((sender, receiver), []).append(seconds)
        return {pair: float(np.median(seconds)) for pair, seconds in found.items()}

    def rates(self, horizon: Horizon = "ever") -> Rates:
        """The rates of streams that brought something in one of the samples, in each of them; where
        a stream did not exist yet, its mean.
        """
        samples = self.chosen(horizon)
        names = dict.fromkeys(name for one in samples for name in one.rates)
        found = {name: [one.rates.get(name, np.nan) for one in samples] for name in names}
        measured: dict[str, Rate] = {}
        for name, rates in found.items():
            mean = float(np.nanmean(rates))
            if mean > 0:
                measured[name] = np.nan_to_num(np.array(rates), nan=mean)
        recent = self._history.recent
        return Rates(measured, _means([one.selectivities for one in recent[-1:]]))

    def loads(self) -> dict[str, float]:
        return _means([one.loads for one in self._history.recent])


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in found for name in one)
    return {name: float(np.mean([one[name] for one in found if name in one])) for name in names}


def _pairs(found: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[tuple[str, str], float]:
    senders = dict.fromkeys(name for one in found for name in one)
    return {
        (sender, receiver): mean
        for sender in senders
        for receiver, mean in _means([one.get(sender, {}) for one in found]).items()
    }
