"""The contract of every placer: pins, exclusions, pockets and capacities are kept, the cost is the
true one, and the same problem gives the same placement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from anabranch.errors import ConfigError, PlacementError
from anabranch.placement.methods import PLACERS, Placer, placer
from anabranch.placement.network import NetworkSamples
from anabranch.placement.problem import Link, PlacementProblem, Vertex
from tests.placement.problems import brute_force, network, seeds, tree

every = pytest.mark.parametrize("method", PLACERS.values(), ids=list(PLACERS))
summing = pytest.mark.parametrize("name", ["best", "dp", "search"])


def check(method: Placer, problem: PlacementProblem) -> float:
    found = method.place(problem)
    sites = problem.indexes(found.sites)
    assert set(found.sites) == {one.name for one in problem.vertices}
    assert problem.allowed[np.arange(len(sites)), sites].all()
    assert found.cost == pytest.approx(problem.cost(sites))
    assert method.place(problem) == found
    return problem.objective(sites)


@every
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_contract(method: Placer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = network(rng, int(rng.integers(1, 6)), int(rng.integers(1, 5)), gaps=0.2)
    problem = tree(
        rng,
        net,
        int(rng.integers(2, 7)),
        pockets=True,
        extra=int(rng.integers(0, 2)),
        penalty=float(rng.choice([0.0, 0.03])),
        varying=bool(rng.random() < 0.5),
    )
    check(method, problem)


def loaded(rng: np.random.Generator, net: NetworkSamples, operators: int = 5) -> PlacementProblem:
    """A tree whose operators have loads, on sites that have limits and speeds."""
    problem = tree(rng, net, operators, varying=True)
    vertices = [
        replace(one, load=float(rng.uniform(0.1, 1)) if one.kind == "operator" else 0.0)
        for one in problem.vertices
    ]
    limits = dict(zip(net.sites, rng.uniform(0.3, 2, len(net.sites)), strict=True))
    speeds = dict(zip(net.sites, rng.choice([0.5, 1.0, 2.0], len(net.sites)), strict=True))
    network = replace(net, capacity=limits, speed=speeds)
    return replace(problem, vertices=vertices, network=network)


@every
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_what_is_too_much_costs_and_is_never_refused(method: Placer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = loaded(rng, network(rng, 3, 2))
    best = brute_force(problem)[1]
    assert check(method, problem) >= best * (1 - 1e-9)


@summing
def test_with_capacities_the_methods_are_near_the_optimum(name: str) -> None:
    ratios = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        problem = loaded(rng, network(rng, 4, 2))
        ratios.append(check(placer(name), problem) / brute_force(problem)[1])
    assert np.median(ratios) <= 1.001
    assert np.percentile(ratios, 90) <= 1.1


@every
def test_a_site_that_is_full_is_given_no_more_and_a_quick_one_takes_more(method: Placer) -> None:
    latency = np.array([[[0, 1.0, 2.0], [1.0, 0, 1.0], [2.0, 1.0, 0]]])
    net = NetworkSamples(("a", "b", "c"), latency, {"a": 0.5, "b": 0.9, "c": 0.9})
    vertices = [Vertex("in", "source", frozenset({"a"})), Vertex("op", load=0.8)]
    links = [Link("in", "op", 1.0)]
    assert method.place(PlacementProblem(vertices, links, net)).sites["op"] == "b"
    quick = replace(net, speed={"a": 2.0})
    assert method.place(PlacementProblem(vertices, links, quick)).sites["op"] == "a"
    slow = replace(net, speed={"b": 0.5})
    assert method.place(PlacementProblem(vertices, links, slow)).sites["op"] == "c"


@every
def test_where_nothing_fits_as_little_as_possible_is_too_much(method: Placer) -> None:
    net = NetworkSamples.unmeasured(["a", "b"], {"a": 0.1, "b": 0.5})
    vertices = [Vertex("in", "source", frozenset({"a"})), Vertex("op", load=1.0)]
    assert method.place(PlacementProblem(vertices, [Link("in", "op", 1.0)], net)).sites["op"] == "b"


@every
def test_traffic_that_a_pair_of_sites_cannot_carry_goes_another_way(method: Placer) -> None:
    """The join is nearest to both at c, but what comes from a does not get through to there."""
    latency = np.array([[[0, 2.0, 1.0], [2.0, 0, 1.0], [1.0, 1.0, 0]]])
    wide = NetworkSamples(("a", "b", "c"), latency)
    narrow = replace(wide, bandwidth={("a", "c"): 5.0})
    vertices = [
        Vertex("A", "source", frozenset({"a"})),
        Vertex("B", "source", frozenset({"b"})),
        Vertex("join"),
    ]
    links = [Link("A", "join", 10.0), Link("B", "join", 9.0)]
    assert method.place(PlacementProblem(vertices, links, wide)).sites["join"] == "c"
    assert method.place(PlacementProblem(vertices, links, narrow)).sites["join"] == "a"


@given(seed=seeds)
@settings(max_examples=150, deadline=None)
def test_dp_is_exact_on_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = network(rng, int(rng.integers(1, 5)), int(rng.integers(1, 4)), gaps=0.1)
    penalty, varying = float(rng.choice([0.0, 0.03])), bool(rng.random() < 0.5)
    problem = tree(rng, net, int(rng.integers(1, 6)), penalty=penalty, varying=varying)
    best = brute_force(problem)
    assert check(placer("dp"), problem) == pytest.approx(best[1])
    assert placer("dp").place(problem).exact


@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_dp_is_exact_on_plans_that_remerge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = tree(rng, network(rng, 4, 3), 5, extra=3, varying=True)
    best = brute_force(problem)
    assert check(placer("dp"), problem) == pytest.approx(best[1])


@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_search_is_never_worse_than_the_sweeps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = tree(rng, network(rng, 6, 3), 10, extra=8)
    assert check(placer("search"), problem) <= check(placer("sbon"), problem) * (1 + 1e-9)


def test_search_is_near_the_optimum_on_plans_that_remerge() -> None:
    ratios = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        problem = tree(rng, network(rng, 8), 8, extra=4)
        ratios.append(check(placer("search"), problem) / check(placer("dp"), problem))
    assert min(ratios) >= 1 - 1e-9
    assert np.median(ratios) <= 1.05


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_pockets_go_where_operators_that_follow_the_samples_cost_least(seed: int) -> None:
    """The two-stage problem, against trying every site of the pocket."""
    rng = np.random.default_rng(seed)
    net = network(rng, 4, 4)
    problem = tree(rng, net, 4, pockets=True, varying=True)
    pocket = next(one for one in problem.vertices if one.kind == "pocket")

    def later(site: str) -> float:
        fixed = [
            replace(one, sites=frozenset({site})) if one is pocket else one
            for one in problem.vertices
        ]
        total = 0.0
        for k in range(4):
            total += brute_force(replace(problem.part(slice(k, k + 1)), vertices=fixed))[1]
        return total

    where = pocket.sites or frozenset(net.sites)
    chosen = placer("dp").place(problem).sites[pocket.name]
    assert later(chosen) == pytest.approx(min(later(site) for site in where))


@every
def test_a_penalty_keeps_operators_where_moving_saves_little(method: Placer) -> None:
    latency = np.array([[[0, 1.0, 1.0], [1.0, 0, 0.99], [1.0, 0.99, 0]]])
    net = NetworkSamples(("a", "b", "c"), latency)
    vertices = [
        Vertex("in", "source", frozenset({"a"})),
        Vertex("op", "operator", frozenset({"b", "c"}), at="b"),
    ]
    links = [Link("in", "op", 1.0)]
    nearer = replace(net, latency=np.where(latency == 1.0, latency * [1, 1, 0.999], latency))
    assert method.place(PlacementProblem(vertices, links, nearer)).sites["op"] in {"b", "c"}
    assert method.place(PlacementProblem(vertices, links, nearer, 0.03)).sites["op"] == "b"


@every
def test_a_pocket_that_runs_stays(method: Placer) -> None:
    net = network(np.random.default_rng(1), 3)
    vertices = [
        Vertex("in", "source", frozenset({"s0"})),
        Vertex("worker", "pocket", at="s2"),
        Vertex("out", "sink", frozenset({"s0"})),
    ]
    links = [Link("in", "worker", 5.0), Link("worker", "out", 5.0)]
    assert method.place(PlacementProblem(vertices, links, net)).sites["worker"] == "s2"


@every
def test_one_site_only(method: Placer) -> None:
    net = NetworkSamples.unmeasured(["alone"])
    problem = PlacementProblem([Vertex("in", "source"), Vertex("op")], [Link("in", "op", 3.0)], net)
    assert method.place(problem).sites == {"in": "alone", "op": "alone"}


@every
def test_nothing_to_place(method: Placer) -> None:
    problem = PlacementProblem([], [], NetworkSamples.unmeasured(["a", "b"]), 0.1)
    assert problem.fits(problem.present)
    assert method.place(problem).sites == {}


@every
def test_zero_rates_keep_operators_near_their_inputs(method: Placer) -> None:
    net = network(np.random.default_rng(3), 5)
    vertices = [Vertex("in", "source", frozenset({"s3"})), Vertex("op")]
    problem = PlacementProblem(vertices, [Link("in", "op", 0.0)], net)
    assert method.place(problem).sites["op"] == "s3"


@summing
def test_nothing_measured_means_that_traffic_alone_counts(name: str) -> None:
    net = NetworkSamples.unmeasured(["a", "b", "c"])
    vertices = [
        Vertex("in", "source", frozenset({"a"})),
        Vertex("op"),
        Vertex("out", "sink", frozenset({"b"})),
    ]
    links = [Link("in", "op", 100.0), Link("op", "out", 1.0)]
    assert placer(name).place(PlacementProblem(vertices, links, net)).sites["op"] == "a"


def test_refusals_name_the_obstacle() -> None:
    net = NetworkSamples.unmeasured(["a", "b"])
    with pytest.raises(PlacementError, match=r"op may only be at gone, which is not there"):
        PlacementProblem([Vertex("op", sites=frozenset({"gone"}))], [], net)
    with pytest.raises(PlacementError, match=r"worker is at gone.*a pocket never moves"):
        PlacementProblem([Vertex("worker", "pocket", at="gone")], [], net)
    with pytest.raises(PlacementError, match=r"there is no site"):
        PlacementProblem([], [], NetworkSamples.unmeasured([]))
    with pytest.raises(ConfigError, match=r"unknown placement method 'magic'"):
        placer("magic")


def test_dp_refuses_what_it_cannot_do_exactly_and_best_searches() -> None:
    rng = np.random.default_rng(7)
    net = network(rng, 30)
    vertices = [Vertex(f"o{i}") for i in range(8)] + [Vertex("in", "source", frozenset({"s0"}))]
    links = [Link(f"o{i}", f"o{j}", 1.0) for i in range(8) for j in range(i)]
    problem = PlacementProblem(vertices, [*links, Link("in", "o7", 1.0)], net)
    with pytest.raises(PlacementError, match=r"re-merges too much"):
        placer("dp").place(problem)
    assert placer("best").place(problem).method == "search"
