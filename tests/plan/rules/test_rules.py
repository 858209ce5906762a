"""Each rule: what it makes of a query, and that the query then gives just the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.plan.catalog import QueryDef
from anabranch.plan.placed import settled
from anabranch.plan.rules import RULES, Graph, outline, rewritten, unplaced
from anabranch.plan.rules.base import Rule
from anabranch.plan.spec import Where
from anabranch.plan.tree import draw, tree
from tests.plan.rules.execute import run
from tests.plan.rules.samples import QUERIES, lookup, query, random_streams, schemas

TEXTS = Path(__file__).parent / "texts"
CASES = [(rule, name) for rule in RULES for name in QUERIES]
SEEDS = range(4)


def case_id(case: object) -> str:
    return getattr(case, "__name__", str(case))


def drawn(one: QueryDef, graph: Graph) -> str:
    return draw(tree(one, graph.nodes, lookup))


@pytest.mark.parametrize(("rule", "name"), CASES, ids=case_id)
def test_before_and_after(rule: Rule, name: str) -> None:
    one = query(name)
    before = Graph((one.written,), lookup)
    after = rule(before)
    text = f"{QUERIES[name]}\n\n{drawn(one, before)}\n\n"
    text += "unchanged\n" if after.nodes == before.nodes else f"{drawn(one, after)}\n"
    assert text == (TEXTS / f"{rule.__name__}.{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", QUERIES)
def test_rewritten_queries_give_the_same(spark: SparkSession, name: str) -> None:
    """By every rule alone, and by all of them with shared parts merged."""
    one = query(name)
    plans = [rule(Graph((one.written,), lookup)).nodes for rule in RULES]
    plans.append(rewritten(one, lookup).nodes)
    changed = [nodes for nodes in plans if nodes != (one.written,)]
    for seed in SEEDS:
        rng = random.Random(seed)
        streams = random_streams(rng)
        expected = run(spark, [one.written], streams, schemas(), rng)
        for nodes in changed:
            found = run(spark, nodes, streams, schemas(), rng)
            assert found.drop(["_born"]).equals(expected.drop(["_born"])), (seed, nodes)


def outlined(name: str) -> QueryDef:
    """The query without its AT."""
    return query(name).model_copy(update={"where": Where()})


@pytest.mark.parametrize("name", QUERIES)
def test_wherever_it_is_placed_it_gives_the_same(spark: SparkSession, name: str) -> None:
    """The outline itself, every node at a site of its own, and random placements of it."""
    one = outlined(name)
    graph = outline(one, lookup)
    for seed in SEEDS:
        rng = random.Random(seed)
        streams = random_streams(rng)
        expected = run(spark, [one.written], streams, schemas(), rng)
        plans = [graph.nodes]
        sites = {node.name: rng.choice(["room1", "room2", "centre"]) for node in graph.nodes}
        plans.append(settled(one, lookup, sites, {}).nodes)
        for nodes in plans:
            found = run(spark, nodes, streams, schemas(), rng)
            assert found.drop(["_born"]).equals(expected.drop(["_born"])), (seed, nodes)


@pytest.mark.parametrize("name", QUERIES)
def test_outline(name: str) -> None:
    one = outlined(name)
    root = one.model_copy(update={"site": unplaced(one.name)})
    text = f"{QUERIES[name]}\n\n{drawn(root, outline(one, lookup))}\n"
    assert text == (TEXTS / f"outline.{name}.txt").read_text("utf-8")


def test_every_rule_changes_something_and_leaves_something() -> None:
    for rule in RULES:
        graphs = [Graph((query(name).written,), lookup) for name in QUERIES]
        changed = [rule(graph).nodes != graph.nodes for graph in graphs]
        assert set(changed) == {True, False}, rule
