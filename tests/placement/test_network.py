"""Gaps in latency samples, and landmark coordinates."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from anabranch.placement.network import ESTIMATED, FAR, NetworkSamples, filled
from anabranch.placement.picture import picture
from anabranch.placement.problem import Link, PlacementProblem, Vertex
from anabranch.placement.reasons import costs_elsewhere, reasons
from anabranch.placement.sweep import landmark_squares

nan = np.nan


def test_a_gap_is_the_pairs_mean_over_other_samples() -> None:
    samples = np.array([[[0, 1.0], [2.0, 0]], [[0, nan], [nan, 0]], [[0, 3.0], [2.0, 0]]])
    assert filled(samples)[1].tolist() == [[0, 2], [2, 0]]


def test_a_pair_never_measured_is_as_far_as_the_way_over_others() -> None:
    sample = np.array([[[0, 1.0, nan], [1.0, 0, 2.0], [nan, 2.0, 0]]])
    assert filled(sample)[0, 0, 2] == pytest.approx(ESTIMATED * 3.0)


def test_a_site_never_measured_is_farther_than_the_worst() -> None:
    sample = np.array([[[0, 4.0, nan], [4.0, 0, nan], [nan, nan, 0]]])
    assert filled(sample)[0, 2].tolist() == [FAR * 4, FAR * 4, 0]


def test_the_diagonal_is_zero() -> None:
    assert filled(np.full((1, 2, 2), nan))[0].tolist() == [[0, 1], [1, 0]]


def test_landmarks_keep_distances_along_a_line() -> None:
    where = np.array([0.0, 1.0, 4.0, 9.0])
    squares = np.square(where[:, None] - where[None, :])[None]
    found = landmark_squares(squares, 1)[0]
    assert found == pytest.approx(squares[0])


def line() -> PlacementProblem:
    where = np.array([0.0, 1.0, 3.0])
    net = NetworkSamples(("a", "b", "c"), np.abs(where[:, None] - where[None, :])[None])
    vertices = [
        Vertex("in", "source", frozenset({"a"})),
        Vertex("op"),
        Vertex("out", "sink", frozenset({"c"})),
    ]
    return PlacementProblem(vertices, [Link("in", "op", 10.0), Link("op", "out", 1.0)], net)


def test_reasons_say_what_the_next_best_site_would_cost() -> None:
    problem = line()
    found = reasons(problem, {"in": "a", "op": "a", "out": "c"})
    assert found["op"].site == "a"
    assert found["op"].cost == pytest.approx(9)
    assert found["op"].runner_up == "b"
    assert found["op"].worse == pytest.approx(10 + 4 - 9)
    assert found["in"].runner_up is None
    assert sum(one.share for one in found.values()) == pytest.approx(1)


def test_what_a_standby_would_cost_elsewhere() -> None:
    found = costs_elsewhere(line(), {"in": "a", "op": "a", "out": "c"}, "op")
    assert found == pytest.approx({"b": 10 + 4, "c": 90})
    pinned = costs_elsewhere(line(), {"in": "a", "op": "a", "out": "c"}, "in")
    assert pinned == pytest.approx({"b": 10, "c": 90})


def test_the_picture_has_every_site_and_vertex() -> None:
    problem = line()
    drawn = picture(problem, {"in": "a", "op": "a", "out": "c"})
    texts = [one.text for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")]
    assert {"a", "b", "c"} <= set(texts)
    assert drawn.count("marker-end") == 1, "within a site nothing is drawn"
    assert any((text or "").startswith("100% · ") for text in texts)
    for vertex in ("in", "op", "out"):
        assert f">{vertex}</text>" in drawn


def test_much_is_said_as_a_factor() -> None:
    reason = reasons(line(), {"in": "a", "op": "a", "out": "c"})["op"]
    assert reason.text(9.0).endswith("at b all would cost 56% more")
    assert reason.text(1.0).endswith("at b all would cost 6 times as much")
    assert reason.text(9.0, "why").endswith("; it stays: why")


def test_a_runner_up_that_is_better_by_now_is_said_to_be() -> None:
    reason = reasons(line(), {"in": "a", "op": "c", "out": "c"})["op"]
    assert reason.runner_up == "a"
    assert reason.text(90.0).endswith("at a all would cost 90% less")


@pytest.mark.parametrize("sites", [1, 2])
def test_a_picture_of_few_sites(sites: int) -> None:
    network = NetworkSamples.unmeasured([f"s{i}" for i in range(sites)])
    ElementTree.fromstring(picture(PlacementProblem([Vertex("op")], [], network), {"op": "s0"}))


def test_a_pair_measured_one_way_is_as_far_the_other_way() -> None:
    sample = np.array([[[0, 1.0, nan], [nan, 0, 2.0], [nan, nan, 0]]])
    assert filled(sample)[0, 1, 0] == pytest.approx(1.0)
    assert filled(sample)[0, 2, 1] == pytest.approx(2.0)
