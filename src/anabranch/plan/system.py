"""The whole system as a placement problem: what runs, where it is, and what may move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Vertex
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.costs import Rates, Streams, width
from anabranch.plan.definitions import settled_sink
from anabranch.plan.operators import Node
from anabranch.plan.spec import Column, Where
from anabranch.plan.tasks import sink_task
from anabranch.units import show_duration


class _Whole(NamedTuple):
    vertices: list[Vertex]
    links: list[Link]


@dataclass(frozen=True)
class PlacedSystem:
    """Definitions by name, the network, and what was measured. `loads` are by task. If something is
    `new`, that alone is to be placed: queries, pockets, and streams that programs fill."""

    known: Mapping[str, AnyDef]
    network: NetworkSamples
    rates: Rates = field(default_factory=Rates)
    loads: Mapping[str, float] = field(default_factory=dict)
    new: frozenset[str] = frozenset()

    def problem(self, move_penalty: float = 0.0) -> PlacementProblem:
        """Operators of queries that AT does not pin may move; pockets, sources and what writes to a
        place of its own may not, nor does what `stays`. What is at a site that is gone is not part
        of it; raises PlacementError if something new needs it."""
        whole = self._whole
        needed = {
            name
            for link in whole.links
            for name in (link.producer, link.consumer)
            if {link.producer, link.consumer} & self._new_vertices
        }
        here = [
            self._kept(one)
            for one in whole.vertices
            if one.name in needed or not self._is_gone(one)
        ]
        names = {one.name for one in here}
        links = [one for one in whole.links if one.producer in names and one.consumer in names]
        return PlacementProblem(here, links, self.network, move_penalty)

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
        """Empty if it may move, or if the user has said where it is."""
        if query.pinned or query.name in self.new:
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
    def _pockets(self) -> dict[str, PocketDef]:
        """The pockets, by the streams that they fill."""
        return {one.output: one for one in self.known.values() if isinstance(one, PocketDef)}

    def vertex_of(self, name: str) -> str:
        """A stream that a pocket fills is that pocket."""
        return self._pockets[name].name if name in self._pockets else name

    @cached_property
    def _new_vertices(self) -> set[str]:
        return {self.vertex_of(one) for one in self.new} | {
            node.name for one in self._queries if one.name in self.new for node in one.nodes
        }

    @cached_property
    def _streams(self) -> Streams:
        return Streams(self.known, self.rates)

    @cached_property
    def _whole(self) -> _Whole:
        """The whole problem, including what is at sites that are gone. New things come first: a
        refusal then names one of them.
        """
        vertices: dict[str, Vertex] = {}
        links = [self._link(one.input, one.name) for one in self._pockets.values()]
        for query in sorted(self._queries, key=lambda one: one.name not in self.new):
            for node in reversed(query.nodes):
                mine = self._vertex(query, node)
                before = vertices.get(node.name)
                vertices[node.name] = _both(before, mine) if before else mine
                if before is None:
                    links += [self._link(port.stream, node.name) for port in node.inputs]
            if sink := self._sink(query):
                vertices[sink.name] = sink
                links.append(self._link(query.name, sink.name))
        return _Whole([*vertices.values(), *self._given()], links)

    def _given(self) -> list[Vertex]:
        """What is where it is, if it is not new."""
        found = [self._pocket(one) for one in self._pockets.values()]
        for one in self.known.values():
            if isinstance(one, StreamDef | TableDef) and one.name not in self._pockets:
                sites = None if one.name in self.new else frozenset({one.site})
                found.append(Vertex(one.name, "source", sites, at=one.site))
        return found

    def _pocket(self, one: PocketDef) -> Vertex:
        """One that is new goes where its stream may be, and not where its standby is."""
        load, stream = self._load(one.name), self.known[one.output]
        if one.name not in self.new:
            return Vertex(one.name, "pocket", at=one.site, load=load)
        if stream.name not in self.new and isinstance(stream, StreamDef):
            return Vertex(one.name, "pocket", frozenset({stream.site}), load=load)
        standby = one.standby.on if one.standby else None
        sites = frozenset(self.network.sites) - {standby} if standby else None
        return Vertex(one.name, "pocket", sites, load=load)

    def _vertex(self, query: QueryDef, node: Node) -> Vertex:
        sites: frozenset[str] | None = frozenset({node.site})
        if not query.pinned and (not self.new or query.name in self.new):
            sites = allowed(query, own=node.name == query.name, sites=self.network.sites)
        load = self._load(node.name)
        if node.name == query.name and not self._sink(query):
            load += self._load(sink_task(query.name))  # it goes along
        return Vertex(node.name, "operator", sites, at=node.site, load=load)

    def _load(self, task: str) -> float:
        return self.loads.get(task, 0.0)

    def _sink(self, query: QueryDef) -> Vertex | None:
        """None if it goes where the query goes."""
        moves_along = query.name in self.new and not query.pinned
        site = query.sink_site if moves_along or not query.sink else settled_sink(query)
        if not query.sink or site is None:
            return None
        name = sink_task(query.name)
        return Vertex(name, "sink", frozenset({site}), at=site, load=self._load(name))

    def _link(self, stream: str, consumer: str) -> Link:
        rate = self._streams.rate(stream) * width(self._columns(stream))
        return Link(self.vertex_of(stream), consumer, rate)

    def _columns(self, stream: str) -> tuple[Column, ...]:
        definition = self.known.get(stream)
        if isinstance(definition, StreamDef | TableDef | QueryDef):
            return definition.wire_columns
        nodes = (
            node for one in self.known.values() if isinstance(one, QueryDef) for node in one.nodes
        )
        return next(node.columns for node in nodes if node.name == stream)


def allowed(query: QueryDef, *, own: bool, sites: tuple[str, ...]) -> frozenset[str] | None:
    """Where a node of a query may be: the query's `own`, or one that was made out of it. Its own is
    not where its standby is."""
    where = query.where or Where(at=(query.site,))
    standby = query.standby.on if query.standby else None
    never = {*where.never, *([standby] if own and standby else [])}
    at = set(where.at) if own and where.at else set(sites)
    return frozenset(at - never) if never or len(at) < len(sites) else None


def _both(vertex: Vertex, other: Vertex) -> Vertex:
    """The vertex of a node that two queries share: it may be where both may be."""
    if vertex.sites is None or other.sites is None:
        return vertex if other.sites is None else other
    common = vertex.sites & other.sites
    stays = frozenset({vertex.at}) if vertex.at else common
    return Vertex(vertex.name, vertex.kind, common or stays, vertex.at, vertex.load)
