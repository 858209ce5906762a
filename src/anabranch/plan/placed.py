"""What is new gets its sites: queries, pockets and the streams that these fill, as one placement
problem with all that runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from anabranch.placement.methods import Placer
from anabranch.placement.network import NetworkSamples
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, Relation, StreamDef
from anabranch.plan.costs import Rates, expected_loads
from anabranch.plan.definitions import relation, tasks
from anabranch.plan.operators import Node
from anabranch.plan.rules import outline, rewritten, share, shared_names
from anabranch.plan.system import PlacedSystem, allowed

Lookup = Callable[[str], Relation]
TIE = 1e-6
"""Of the cost: of placements that are as good, the one with more where it was bound is taken."""


@dataclass(frozen=True)
class Surroundings:
    """What is placed into: the network, what was measured, and the nodes that run already, each
    with its site."""

    network: NetworkSamples
    rates: Rates = field(default_factory=Rates)
    loads: Mapping[str, float] = field(default_factory=dict)
    running: Mapping[str, str] = field(default_factory=dict)


def placed(
    new: Collection[str], known: Mapping[str, AnyDef], around: Surroundings, placer: Placer
) -> dict[str, AnyDef]:
    """Those definitions of `known` that are `new` and may be anywhere, each at its site: pockets
    for good, while operators may still move. Raises PlacementError."""
    plans = _plans(new, known, around)
    apart = {name: plan.at(around.running) for name, plan in plans.items()}
    whole = {**known, **apart}
    unmeasured = expected_loads(tasks(whole.values(), whole), whole, around.rates)
    loads = unmeasured | dict(around.loads)
    system = PlacedSystem(whole, around.network, around.rates, loads, frozenset(new))
    sites = placer.place(system.problem(TIE)).sites
    done: dict[str, AnyDef] = {}
    for one in known.values():
        if one.name in new and isinstance(one, PocketDef | StreamDef):
            site = sites[system.vertex_of(one.name)]
            done[one.name] = one.model_copy(update={"site": site})
    running = dict(around.running)
    for name, plan in plans.items():
        look = partial(relation, {**known, **done})
        there = settled(plan.query, look, plan.outlined(sites), running)
        running |= {node.name: node.site for node in there.nodes if not node.stateful}
        done[name] = there
    return done


def _plans(
    new: Collection[str], known: Mapping[str, AnyDef], around: Surroundings
) -> dict[str, Spread]:
    """What queries share is one node; but not if one may be where the other may not."""
    plans = {
        one.name: spread(one, partial(relation, known), around.running)
        for one in known.values()
        if isinstance(one, QueryDef) and one.name in new
    }
    may: dict[str, set[frozenset[str] | None]] = {}
    for plan in plans.values():
        for node in plan.nodes[:-1]:
            sites = allowed(plan.query, own=False, sites=around.network.sites)
            may.setdefault(node.name, set()).add(sites)
    clash = {name for name, sites in may.items() if len(sites) > 1} - around.running.keys()
    return {name: plan.with_own(clash) for name, plan in plans.items()}


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

    def with_own(self, names: Collection[str]) -> Spread:
        """The query with these nodes under names that nobody else uses."""
        own = {name: f"{name}~{self.query.name}" for name in names}
        nodes = [
            node.model_copy(
                update={
                    "name": own.get(node.name, node.name),
                    "inputs": tuple(
                        port.model_copy(update={"stream": own.get(port.stream, port.stream)})
                        for port in node.inputs
                    ),
                }
            )
            for node in self.nodes
        ]
        called = {name: own.get(shared, shared) for name, shared in self.names.items()}
        return Spread(self.query, tuple(nodes), called)

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
