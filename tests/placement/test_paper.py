"""The placement paper's formulas and its worked example: equation (1), 4.3, 4.4 and figure 8."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from anabranch.placement.methods import placer
from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Vertex
from anabranch.placement.sweep import sweep
from tests.placement.problems import network, seeds, tree

BUSY_WHEN_NEAR = np.array([[[0, 0.1], [0.1, 0]], [[0, 0.3], [0.3, 0]]])


def two(rate: float | list[float]) -> PlacementProblem:
    vertices = [Vertex("in", "source", frozenset({"m"})), Vertex("out", "sink", frozenset({"n"}))]
    links = [Link("in", "out", np.array(rate) if isinstance(rate, list) else rate)]
    return PlacementProblem(vertices, links, NetworkSamples(("m", "n"), BUSY_WHEN_NEAR))


def test_equation_1_takes_rate_and_latency_of_the_same_sample() -> None:
    """Σ DR(l) · Lat(l)² with samples of both, 4.2: not a product of means."""
    sites = np.array([0, 1])
    steady, near, far = two(20.0), two([30.0, 10.0]), two([10.0, 30.0])
    assert steady.cost(sites) == pytest.approx((20 * 0.01 + 20 * 0.09) / 2)
    assert near.cost(sites) == pytest.approx((30 * 0.01 + 10 * 0.09) / 2)
    assert far.cost(sites) == pytest.approx((10 * 0.01 + 30 * 0.09) / 2)


@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_all_ways_to_a_links_cost_agree(seed: int) -> None:
    """By placement, by table, by row and by column, against equation (1) written down."""
    rng = np.random.default_rng(seed)
    problem = tree(rng, network(rng, 4, 3), 4, varying=bool(rng.random() < 0.5))
    sites = np.array([rng.choice(np.flatnonzero(row)) for row in problem.allowed])
    squares = np.square(problem.network.latency)
    for link, (a, b) in enumerate(zip(problem.producers, problem.consumers, strict=True)):
        m, n = int(sites[a]), int(sites[b])
        plain = np.mean([problem.rates[k, link] * squares[k, m, n] * (m != n) for k in range(3)])
        costs = problem.costs
        assert problem.link_costs(sites)[link] == pytest.approx(plain)
        assert costs.rate[link] * costs.unit(link)[m, n] == pytest.approx(plain)
        assert costs.produced_at(link, m)[n] == pytest.approx(plain)
        assert costs.consumed_at(link, n)[m] == pytest.approx(plain)


def star(near: list[int], rates: list[float]) -> PlacementProblem:
    """As figure 8's tree: O1 and O2 read two sources each, WorkerPocket-A reads both and gives
    little, B is pinned at node 4 and reads A. In the k-th sample node near[k] is near all."""
    nodes = ("1", "2", "3", "4")
    latency = np.full((len(near), 4, 4), 0.2)
    for sample, middle in zip(latency, near, strict=True):
        sample[middle, :] = sample[:, middle] = 0.02
        np.fill_diagonal(sample, 0.0)
    sources = [Vertex(f"S{n}", "source", frozenset({n})) for n in ("1", "2", "3")]
    pockets = [Vertex("A", "pocket"), Vertex("B", "pocket", frozenset({"4"}))]
    rate = np.array(rates)
    links = [Link("S1", "O1", rate), Link("S2", "O1", rate), Link("S1", "O2", rate)]
    links += [Link("S3", "O2", rate), Link("O1", "A", rate), Link("O2", "A", rate)]
    links.append(Link("A", "B", rate / 100))
    vertices = [*sources, Vertex("O1"), Vertex("O2"), *pockets]
    return PlacementProblem(vertices, links, NetworkSamples(nodes, latency))


@pytest.mark.parametrize("method", ["vote", "best", "dp", "search"])
def test_figure_8(method: str) -> None:
    """In most of the samples node 1 is nearest: A, O1 and O2 go to node 1, B stays at node 4."""
    found = placer(method).place(star([0] * 7 + [1] * 3, [10.0] * 10)).sites
    assert {name: found[name] for name in ("O1", "O2", "A", "B")} == {
        "O1": "1",
        "O2": "1",
        "A": "1",
        "B": "4",
    }


def test_the_vote_is_the_majority_of_the_samples_and_the_sum_is_of_their_costs() -> None:
    """4.3 (4): the node that most samples choose, however little came then; the sum knows that
    nearly all comes in the others."""
    problem = star([0] * 6 + [1] * 4, [1.0] * 6 + [1000.0] * 4)
    votes = sweep(problem, problem.network.squares, problem.rates)
    chosen = [problem.network.sites[one] for one in votes[:, problem.index["A"]]]
    assert chosen == ["1"] * 6 + ["2"] * 4
    assert placer("vote").place(problem).sites["A"] == "1"
    assert placer("best").place(problem).sites["A"] == "2"


def test_the_sweeps_of_4_4() -> None:
    """(1) each operator starts at the node nearest its input, (2) then goes where equation (1) is
    least. Starting at b, the join is best between its inputs."""
    latency = np.array([[[0, 3.0, 1.0], [3.0, 0, 1.0], [1.0, 1.0, 0]]])
    vertices = [
        Vertex("A", "source", frozenset({"a"})),
        Vertex("B", "source", frozenset({"b"})),
        Vertex("join"),
        Vertex("out", "sink", frozenset({"c"})),
    ]
    links = [Link("A", "join", 1.0), Link("B", "join", 2.0), Link("join", "out", 1.0)]
    problem = PlacementProblem(vertices, links, NetworkSamples(("a", "b", "c"), latency))
    (swept,) = sweep(problem, problem.network.squares, problem.rates)
    assert problem.named(swept)["join"] == "c"
    assert placer("sbon").place(problem).cost == pytest.approx(1 + 2)
