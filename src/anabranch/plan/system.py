"""The whole system as a placement problem: what runs, where it is, and what may move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Vertex
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.costs import UNKNOWN_RATE, Rates, rates_of, width
from anabranch.plan.definitions import settled_sink
from anabranch.plan.operators import Node
from anabranch.plan.placed import allowed
from anabranch.plan.spec import Column
from anabranch.plan.tasks import sink_task
from anabranch.units import show_duration


class _Whole(NamedTuple):
    vertices: list[Vertex]
    links: list[Link]


@dataclass(frozen=True)
class PlacedSystem:
    """Definitions by name, the network, and what was measured. `loads` are by task."""

    known: Mapping[str, AnyDef]
    network: NetworkSamples
    rates: Rates = field(default_factory=Rates)
    loads: Mapping[str, float] = field(default_factory=dict)

    def problem(self, move_penalty: float = 0.0) -> PlacementProblem:
        """The placement problem. Operators of queries that AT does not pin may move. Pockets,
        sources and sinks with a place of their own may not, nor may what `stays`. What is at a site
        that is gone is not part of it.
        """
        whole = self._whole
        vertices = [self._kept(one) for one in whole.vertices if not self._is_gone(one)]
        names = {one.name for one in vertices}
        links = [one for one in whole.links if one.producer in names and one.consumer in names]
        return PlacementProblem(vertices, links, self.network, move_penalty)

    @cached_property
    def stays(self) -> dict[str, str]:
        """Maps operators that the system would place, and pockets, to the reason why they stay
        where they are.
        """
        vertices = {one.name: one for one in self._whole.vertices}
        reasons = {
            one.name: "a pocket never moves" for one in self._whole.vertices if one.kind == "pocket"
        }
        for query in self._queries:
            for node in query.nodes:
                if why := self._reason(query, node):
                    reasons[node.name] = why
        for link in self._whole.links:
            ends = vertices[link.producer], vertices[link.consumer]
            for end, other in (ends, ends[::-1]):
                if self._is_gone(other) and not self._is_gone(end) and end.kind == "operator":
                    reasons.setdefault(end.name, f"{other.name} is at {other.at}, which is gone")
        return reasons

    def _reason(self, query: QueryDef, node: Node) -> str:
        """The reason why it stays; empty if it may move, or if the user has chosen its site."""
        if query.pinned:
            return ""
        if node.site not in self.network.sites:
            return f"{node.site} is gone"
        if query.stages:
            return f"it reads {query.stages[0]}, whose state is there"
        if query.deadline:
            return f"it is where DEADLINE {show_duration(query.deadline.us)} was promised"
        return ""

    def _kept(self, vertex: Vertex) -> Vertex:
        """The vertex with the one site it may be at, if it stays or all other sites are gone."""
        lost = vertex.sites is not None and not vertex.sites & set(self.network.sites)
        if (vertex.name in self.stays or lost) and vertex.at:
            return replace(vertex, sites=frozenset({vertex.at}))
        return vertex

    def _is_gone(self, vertex: Vertex) -> bool:
        return vertex.at is not None and vertex.at not in self.network.sites

    @cached_property
    def _queries(self) -> list[QueryDef]:
        return [one for one in self.known.values() if isinstance(one, QueryDef)]

    @cached_property
    def _whole(self) -> _Whole:
        """The whole problem, including what is at sites that are gone."""
        queries = self._queries
        rates = self._stream_rates(queries)
        vertices = {one.name: one for one in self._given()}
        links = [
            self._link(one.input, one.name, rates)
            for one in self.known.values()
            if isinstance(one, PocketDef)
        ]
        for query in queries:
            for node in query.nodes:
                mine = self._vertex(query, node)
                before = vertices.get(node.name)
                vertices[node.name] = _both(before, mine) if before else mine
                if before is None:
                    links += [self._link(port.stream, node.name, rates) for port in node.inputs]
            if sink := self._sink(query):
                vertices[sink.name] = sink
                links.append(self._link(query.name, sink.name, rates))
        return _Whole(list(vertices.values()), links)

    def _given(self) -> list[Vertex]:
        """The vertices that do not move. A stream that a pocket fills is that pocket."""
        filled = {one.output for one in self.known.values() if isinstance(one, PocketDef)}
        vertices = []
        for definition in self.known.values():
            if isinstance(definition, PocketDef):
                vertices.append(
                    Vertex(
                        definition.name,
                        "pocket",
                        at=definition.site,
                        load=self._load(definition.name),
                    )
                )
            elif isinstance(definition, StreamDef | TableDef) and definition.name not in filled:
                vertices.append(
                    Vertex(
                        definition.name, "source", frozenset({definition.site}), at=definition.site
                    )
                )
        return vertices

    def _vertex(self, query: QueryDef, node: Node) -> Vertex:
        sites: frozenset[str] | None = frozenset({node.site})
        if not query.pinned:
            sites = allowed(query, own=node.name == query.name, sites=self.network.sites)
        return Vertex(node.name, "operator", sites, at=node.site, load=self._load(node.name))

    def _load(self, task: str) -> float:
        return self.loads.get(task, 0.0)

    def _sink(self, query: QueryDef) -> Vertex | None:
        """The vertex of the sink; None if it moves with the query."""
        site = settled_sink(query) if query.sink else None
        if site is None:
            return None
        return Vertex(sink_task(query.name), "sink", frozenset({site}), at=site)

    def _link(self, stream: str, consumer: str, rates: Mapping[str, float]) -> Link:
        rate = rates.get(stream, self.rates.measured.get(stream, UNKNOWN_RATE))
        return Link(self._producer(stream), consumer, rate * width(self._columns(stream)))

    def _producer(self, stream: str) -> str:
        fillers = (
            one.name
            for one in self.known.values()
            if isinstance(one, PocketDef) and one.output == stream
        )
        return next(fillers, stream)

    def _columns(self, stream: str) -> tuple[Column, ...]:
        definition = self.known.get(stream)
        if isinstance(definition, StreamDef | TableDef | QueryDef):
            return definition.wire_columns
        nodes = (
            node for one in self.known.values() if isinstance(one, QueryDef) for node in one.nodes
        )
        return next(node.columns for node in nodes if node.name == stream)

    def _stream_rates(self, queries: list[QueryDef]) -> dict[str, float]:
        nodes = {node.name: node for query in queries for node in query.nodes}
        return rates_of(list(nodes.values()), self.rates)


def _both(vertex: Vertex, other: Vertex) -> Vertex:
    """The vertex of a node that two queries share: it may be where both may be."""
    if vertex.sites is None or other.sites is None:
        return vertex if other.sites is None else other
    common = vertex.sites & other.sites
    stays = frozenset({vertex.at}) if vertex.at else common
    return Vertex(vertex.name, vertex.kind, common or stays, vertex.at, vertex.load)
