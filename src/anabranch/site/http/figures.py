"""Figures for Prometheus: what there is, and its text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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
    def __init__(self, inventory: Sequence[Figure], found: Mapping[str, Values]) -> None:
        self._inventory = inventory
        self._found = found

    def collect(self) -> Iterator[Metric]:
        for figure in self._inventory:
            family = CounterMetricFamily if figure.counts else GaugeMetricFamily
            metric = family(figure.name, figure.help, labels=figure.labels)
            for labels, value in self._found[figure.name]:
                metric.add_metric(labels, value)
            yield metric


def exposition(inventory: Sequence[Figure], found: Mapping[str, Values]) -> str:
    """`found`: the name of every figure of the inventory → its values by labels."""
    registry = CollectorRegistry()
    registry.register(_Values(inventory, found))
    return generate_latest(registry).decode()
