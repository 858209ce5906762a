"""A site's own figures for Prometheus, made anew at each scrape from the report that its
heartbeats carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.link.reports import SiteReport

Values = Iterable[tuple[tuple[str, ...], float]]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Figure:
    name: str
    help: str
    labels: tuple[str, ...]
    counts: bool = False
    """Only ever grows."""


class _Values(Collector):
    def __init__(self, inventory: Sequence[Figure], values: Mapping[str, Values]) -> None:
        self._inventory = inventory
        self._found = values

    def collect(self) -> Iterator[Metric]:
        for figure in self._inventory:
            family = CounterMetricFamily if figure.counts else GaugeMetricFamily
            metric = family(figure.name, figure.help, labels=figure.labels)
            for labels, value in self._found[figure.name]:
                metric.add_metric(labels, value)
            yield metric


def exposition(inventory: Sequence[Figure], values: Mapping[str, Values]) -> str:
    """The figures as text. `values` maps the name of every figure of the inventory to its values by
    labels.
    """
    registry = CollectorRegistry()
    registry.register(_Values(inventory, values))
    return generate_latest(registry).decode()


_TASK = ("site", "query", "task", "role")
INVENTORY = (
    Figure("anabranch_task_running", "1 while it runs or has ended well", _TASK),
    Figure("anabranch_task_epoch", "Which time of the task as its output's producer", _TASK),
    Figure("anabranch_task_tuples_in", "Tuples taken", _TASK, counts=True),
    Figure("anabranch_task_tuples_out", "Results made", _TASK, counts=True),
    Figure("anabranch_task_queue", "Tuples that wait for it", _TASK),
    Figure("anabranch_task_fixed_seconds", "What an instance costs besides its tuples", _TASK),
    Figure("anabranch_task_tuple_seconds", "What a tuple costs", _TASK),
    Figure("anabranch_task_latency_seconds", "Age of results when they leave, by quantile",
           (*_TASK, "quantile")),
    Figure("anabranch_task_judged", "Results that had a deadline", _TASK, counts=True),
    Figure("anabranch_task_late", "Of those, results that were late", _TASK, counts=True),
    Figure("anabranch_source_tuples", "Tuples that have entered here", ("site", "stream"),
           counts=True),
    Figure("anabranch_outlet_kept_tuples", "Tuples kept for consumers", ("site", "stream")),
    Figure("anabranch_outlet_kept_bytes", "Bytes kept for consumers", ("site", "stream")),
    Figure("anabranch_round_trip_seconds", "The last call to another site, there and back",
           ("site", "other")),
    Figure("anabranch_failures", "Times that something which goes on by itself failed and was"
           " begun again", ("site", "name"), counts=True),
)  # fmt: skip


def site_exposition(report: SiteReport) -> str:
    return exposition(INVENTORY, _values(report))


def _values(report: SiteReport) -> dict[str, Values]:
    site = report.site
    tasks = [((site, one.query, one.name, one.role), one) for one in report.tasks]
    due = [(at, one) for at, one in tasks if one.deadline_ms]
    kept = [((site, stream), one) for stream, one in report.kept.items()]
    latencies = [((*at, quantile), ms / 1e3) for at, one in tasks
                 for quantile, ms in (("0.5", one.p50_ms), ("0.99", one.p99_ms))
                 if ms is not None]  # fmt: skip
    return {
        "anabranch_task_running": [(at, one.state in ("running", "done")) for at, one in tasks],
        "anabranch_task_epoch": [(at, one.epoch) for at, one in tasks],
        "anabranch_task_tuples_in": [(at, one.rows_in) for at, one in tasks],
        "anabranch_task_tuples_out": [(at, one.rows_out) for at, one in tasks],
        "anabranch_task_queue": [(at, one.queue) for at, one in tasks],
        "anabranch_task_fixed_seconds": [(at, one.fixed_ms / 1e3) for at, one in tasks],
        "anabranch_task_tuple_seconds": [(at, one.per_tuple_us / 1e6) for at, one in tasks],
        "anabranch_task_latency_seconds": latencies,
        "anabranch_task_judged": [(at, one.judged) for at, one in due],
        "anabranch_task_late": [(at, one.late) for at, one in due],
        "anabranch_source_tuples": [((site, one.stream), one.rows)
                                    for one in report.sources],
        "anabranch_outlet_kept_tuples": [(at, tuples) for at, (tuples, _) in kept],
        "anabranch_outlet_kept_bytes": [(at, size) for at, (_, size) in kept],
        "anabranch_round_trip_seconds": [((site, other), seconds) for other, seconds
                                         in report.round_trips.items()],
        "anabranch_failures": [((site, one.name), one.times)
                               for one in report.troubles],
    }  # fmt: skip
