"""Chooses a query's sites: its outline becomes a placement problem, and the answer its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.placement.methods import Placer
from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Vertex
from anabranch.plan.catalog import QueryDef, Relation
from anabranch.plan.costs import Rates, rates_of, width
from anabranch.plan.operators import Node
from anabranch.plan.rules import Graph, outline, rewritten, share, shared_names
from anabranch.plan.spec import Where
from anabranch.plan.tasks import sink_task

Lookup = Callable[[str], Relation]


@dataclass(frozen=True)
class Surroundings:
    """The environment that a query is placed in: the network, the measurements, and the nodes that
    run already, each with its site.
    """

    network: NetworkSamples
    rates: Rates = field(default_factory=Rates)
    running: Mapping[str, str] = field(default_factory=dict)


def placed(query: QueryDef, lookup: Lookup, around: Surroundings, placer: Placer) -> QueryDef:
    """`query` with a site for each of its nodes; neighbours at one site become one task."""
    if query.pinned:
        return rewritten(query, lookup, around.running)
    graph = outline(query, lookup)
    sites = placer.place(problem_of(query, graph, around))
    return settled(query, lookup, sites.sites, around.running)


def placed_with_pocket(
    query: QueryDef, pocket: str, lookup: Lookup, around: Surroundings, placer: Placer
) -> tuple[QueryDef, str]:
    """`query` placed together with the pocket that reads it, and the pocket's site. That site is
    final, while the query's operators may still move.
    """
    graph = outline(query, lookup)
    sites = placer.place(problem_of(query, graph, around, pocket))
    return settled(query, lookup, sites.sites, around.running), sites.sites[pocket]


def settled(
    query: QueryDef, lookup: Lookup, sites: Mapping[str, str], running: Mapping[str, str]
) -> QueryDef:
    """`query` run at the sites that a placement of its outline gives."""
    site = sites[query.name]
    moved = query.model_copy(
        update={"site": site, "written": query.written.model_copy(update={"site": site})}
    )
    return rewritten(moved, lookup, running, sites)


@dataclass(frozen=True)
class Spread:
    """A query that is placed, as the nodes of its outline. Each has the name that equal nodes of
    all queries share; `names` maps the outline's own names to these.
    """

    query: QueryDef
    nodes: tuple[Node, ...]
    names: Mapping[str, str]

    def at(self, sites: Mapping[str, str]) -> QueryDef:
        """The query with each node a task of its own, at its site in `sites`, or else where the
        query is now.
        """
        present = {node.name: node.site for node in self.query.nodes} | dict(sites)
        nodes = [
            node.model_copy(update={"site": present.get(node.name, self.query.site)})
            for node in self.nodes
        ]
        return self.query.model_copy(update={"nodes": tuple(nodes)})

    def outlined(self, sites: Mapping[str, str]) -> dict[str, str]:
        """The sites of the outline's nodes."""
        present = {node.name: node.site for node in self.at(sites).nodes}
        names = {**self.names, self.query.name: self.query.name}
        return {name: present[called] for name, called in names.items()}


def spread(query: QueryDef, lookup: Lookup, running: Mapping[str, str]) -> Spread:
    graph = outline(query, lookup)
    return Spread(query, share(graph, running).nodes, shared_names(graph, running))


def problem_of(
    query: QueryDef, graph: Graph, around: Surroundings, pocket: str | None = None
) -> PlacementProblem:
    """The placement problem. Vertices have the names of the outline's nodes and the streams they
    read; a sink with a site of its own has its task's name. There may be a `pocket` that reads the
    query.
    """
    names = shared_names(graph)
    rates = rates_of(graph.nodes, around.rates, lambda name: names.get(name, name))
    own = graph.nodes[-1]
    # First of all: a refusal then speaks of the query itself.
    vertices = {own.name: _vertex(query, own, None, around.network)}
    links: list[Link] = []
    for node in graph.nodes:
        for port in node.inputs:
            if graph.node(port.stream) is None:
                vertices.setdefault(port.stream, _source(graph, port.stream))
            rate = rates.get(port.stream, around.rates.measured.get(port.stream, 1.0))
            links.append(Link(port.stream, node.name, rate * width(graph.columns(port.stream))))
        site = None if node.stateful else around.running.get(names.get(node.name, ""))
        vertices.setdefault(node.name, _vertex(query, node, site, around.network))
    if query.sink and query.sink_site:
        sink = sink_task(query.name)
        vertices[sink] = Vertex(sink, "sink", frozenset({query.sink_site}))
        links.append(Link(query.name, sink, rates[query.name] * width(query.columns)))
    if pocket:
        vertices[pocket] = Vertex(pocket, "pocket")
        links.append(Link(query.name, pocket, rates[query.name] * width(query.columns)))
    return PlacementProblem(list(vertices.values()), links, around.network)


def _source(graph: Graph, stream: str) -> Vertex:
    return Vertex(stream, "source", frozenset({graph.lookup(stream).site}))


def _vertex(query: QueryDef, node: Node, running: str | None, network: NetworkSamples) -> Vertex:
    """The node's vertex. A node that runs already stays where it runs, whatever this query says."""
    if running is not None and running in network.index:
        return Vertex(node.name, sites=frozenset({running}))
    own = node.name == query.name
    return Vertex(node.name, sites=allowed(query, own=own, sites=network.sites))


def allowed(query: QueryDef, *, own: bool, sites: tuple[str, ...]) -> frozenset[str] | None:
    """The note at the broker of how far a query's results are in a topic; the transactions that
    write results update it.

    The note is the offset of a consumer group without members, `anabranch-<query>-<topic>`. A text
    with it says who writes, by run and epoch, and the last position; the offsets say from where on
    each partition may hold records of ours that the note does not cover. So a whole topic is never
    read back, and it does not matter which records its retention has deleted.
    """
    where = query.where or Where(at=(query.site,))
    standby = query.standby.on if query.standby else None
    never = {*where.never, *([standby] if own and standby else [])}
    at = set(where.at) if own and where.at else set(sites)
    return frozenset(at - never) if never or len(at) < len(sites) else None
