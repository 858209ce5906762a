"""Rewrites queries: they give the same output from operators nearer to the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.plan.catalog import QueryDef, Relation
from anabranch.plan.rules.base import Graph, Rule, unplaced
from anabranch.plan.rules.join_near_sources import join_near_sources
from anabranch.plan.rules.prune_columns import prune_columns
from anabranch.plan.rules.push_selections import push_selections
from anabranch.plan.rules.share import share, shared_names

RULES: tuple[Rule, ...] = (push_selections, join_near_sources, prune_columns)
"""In this order: what selections let through is joined, and what is left is pruned."""

__all__ = ["RULES", "Graph", "outline", "rewritten", "share", "shared_names", "unplaced"]

Lookup = Callable[[str], Relation]


def outline(query: QueryDef, lookup: Lookup) -> Graph:
    """The smallest nodes that `query` can be run as, each to be placed by itself. None has a site
    yet.
    """
    root = query.written.model_copy(update={"site": unplaced(query.name)})
    return _by_rules(Graph((root,), lookup, chosen=None))


def rewritten(
    query: QueryDef,
    lookup: Lookup,
    running: Mapping[str, str] | None = None,
    chosen: Mapping[str, str] | None = None,
) -> QueryDef:
    """`query`, at its site, with its nodes rewritten. `chosen` are the sites of nodes of its
    outline: a node at the site of its reader is computed there, as part of it. Other nodes are
    where their inputs are.

    `running` are the nodes of queries that run already, and their sites. Nodes without state are
    used again, but windows that run have seen tuples which a new one must not see.
    """
    never = query.where.never if query.where else ()
    graph = _by_rules(Graph((query.written,), lookup, chosen or {}, never))
    return query.model_copy(update={"nodes": share(graph, running or {}).nodes})


def _by_rules(graph: Graph) -> Graph:
    for rule in RULES:
        graph = rule(graph)
    return graph
