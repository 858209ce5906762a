"""Rewriting: the same output from operators nearer to the sources."""

from __future__ import annotations

from collections.abc import Callable, Collection

from anabranch.plan.catalog import QueryDef, Relation
from anabranch.plan.rules.base import Graph, Rule
from anabranch.plan.rules.join_near_sources import join_near_sources
from anabranch.plan.rules.prune_columns import prune_columns
from anabranch.plan.rules.push_selections import push_selections
from anabranch.plan.rules.share import share

RULES: tuple[Rule, ...] = (push_selections, join_near_sources, prune_columns)
"""In this order: what selections let through is joined, and what is left is pruned."""

__all__ = ["RULES", "Graph", "rewritten"]


def rewritten(
    query: QueryDef, lookup: Callable[[str], Relation], running: Collection[str] = ()
) -> QueryDef:
    """`query` with its nodes rewritten. `running` are the nodes of queries that run already: those
    without state are used again, while windows that run have seen what a new one must not."""
    graph = Graph((query.written,), lookup)
    for rule in RULES:
        graph = rule(graph)
    return query.model_copy(update={"nodes": share(graph, running).nodes})
