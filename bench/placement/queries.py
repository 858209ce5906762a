"""Random query graphs, their sources and sinks pinned at random sites, some operators pockets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Rate, Vertex
from bench.placement.rates import Series, steady


def query(
    rng: np.random.Generator,
    network: NetworkSamples,
    operators: int,
    *,
    remerging: bool = False,
    pockets: int = 0,
    rates: Series = steady,
) -> PlacementProblem:
    """A tree of operators with one or two inputs each, down to one sink; or, `remerging`, a plan in
    which a stream may have several readers, and each that has none goes to a sink of its own. So
    many of the operators are `pockets`, taken at random. Every source has a rate for each sample of
    the network."""
    builder = _Builder(rng, network, rates)
    for number in range(operators):
        inputs = 2 if builder.open and rng.random() < 0.5 else 1
        builder.operator(f"o{number}", inputs, remerging=remerging)
    while len(builder.open) > 1 and not remerging:
        builder.merge()
    for stream in builder.open:
        builder.sink(stream)
    vertices = builder.vertices
    ours = [v for v, one in enumerate(vertices) if one.kind == "operator"]
    for v in rng.choice(ours, size=pockets, replace=False).tolist():
        vertices[v] = replace(vertices[v], kind="pocket")
    return PlacementProblem(vertices, builder.links, network)


class _Builder:
    def __init__(self, rng: np.random.Generator, network: NetworkSamples, series: Series) -> None:
        self._rng = rng
        self._network = network
        self._series = series
        self._rates: dict[str, Rate] = {}
        self.vertices: list[Vertex] = []
        self.links: list[Link] = []
        self.open: list[str] = []
        """Operators that nobody reads yet."""

    def operator(self, name: str, inputs: int, *, remerging: bool) -> None:
        """Reads what is open, or else a source; `remerging`, also what others read already."""
        read = []
        known = [one for one in self._rates if one.startswith("o")]
        for _ in range(inputs):
            if remerging and known and self._rng.random() < 0.7:
                read.append(str(self._rng.choice(known)))
            elif self.open and not remerging and self._rng.random() < 0.6:
                read.append(self.open.pop(int(self._rng.integers(len(self.open)))))
            else:
                read.append(self._source())
        self._add(name, list(dict.fromkeys(read)))

    def merge(self) -> None:
        """Two open streams become one, by the operator of the first."""
        first, second = self.open.pop(), self.open.pop(0)
        self.links.append(Link(second, first, self._rates[second]))
        self.open.append(first)

    def sink(self, stream: str) -> None:
        name = f"out {stream}"
        self.vertices.append(Vertex(name, "sink", self._anywhere()))
        self.links.append(Link(stream, name, self._rates[stream]))

    def _source(self) -> str:
        name = f"in{len(self.vertices)}"
        self.vertices.append(Vertex(name, "source", self._anywhere()))
        self._rates[name] = self._series(self._rng, self._network.samples)
        return name

    def _add(self, name: str, read: list[str]) -> None:
        self.vertices.append(Vertex(name))
        self.links += [Link(one, name, self._rates[one]) for one in read]
        arriving = sum(self._rates[one] for one in read)
        self._rates[name] = arriving * float(self._rng.uniform(0.05, 1.0))
        self.open = [one for one in self.open if one not in read] + [name]

    def _anywhere(self) -> frozenset[str]:
        return frozenset({str(self._rng.choice(self._network.sites))})
