"""A query's sites: from its outline, the network and what is known of rates."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.errors import PlacementError
from anabranch.placement.methods import placer
from anabranch.placement.network import NetworkSamples
from anabranch.plan.catalog import AnyDef, QueryDef, Relation
from anabranch.plan.costs import Rates
from anabranch.plan.placed import Surroundings, placed, placed_with_pocket
from tests.language.fakes import bind, define

SITES = ("room1", "room2", "centre")
KNOWN: dict[str, AnyDef] = {
    one.name: one
    for one in define("""
CREATE STREAM A (k INT, v DOUBLE, s STRING) FROM f() AT room1;
CREATE STREAM B (k INT, v DOUBLE, s STRING) FROM f() AT room1;
CREATE STREAM C (k INT, v DOUBLE, s STRING) FROM f() AT room2
""")
}
FIRE = (
    "CREATE QUERY fire AS MASTER A SELECT A.v, C.v AS cv FROM A[5s], C[5s]"
    " WHERE A.v > 50 AND C.v > 50 INTO f() ON centre"
)


def lookup(name: str) -> Relation:
    found = KNOWN[name]
    assert not isinstance(found, QueryDef) or found.nodes
    return found  # type: ignore[return-value]


def place(
    text: str,
    *,
    rates: Rates | None = None,
    latency: list[list[float]] | None = None,
    running: dict[str, str] | None = None,
) -> QueryDef:
    network = NetworkSamples.unmeasured(SITES)
    if latency:
        network = NetworkSamples(SITES, np.array([latency]))
    query = bind(text, lookup=KNOWN.get)
    around = Surroundings(network, rates or Rates(), running or {})
    return placed(query, lookup, around, placer("best"))


def sites(query: QueryDef) -> dict[str, str]:
    return {node.name.partition("~")[0]: node.site for node in query.nodes}


def test_a_join_goes_where_the_most_comes_from() -> None:
    quiet_a = place(FIRE, rates=Rates({"A": 1.0, "C": 100.0}))
    assert (quiet_a.site, quiet_a.written.site) == ("room2", "room2")
    quiet_c = place(FIRE, rates=Rates({"A": 100.0, "C": 1.0}))
    assert quiet_c.site == "room1"


def test_selections_stay_near_their_stream_and_neighbours_at_one_site_are_one_node() -> None:
    query = place(FIRE, rates=Rates({"A": 100.0, "C": 1.0}))
    names = [node.name for node in query.nodes]
    assert sites(query) == {"C": "room2", "fire": "room1"}
    assert len(names) == 2, "A's selection is part of the join at room1"


def test_it_follows_the_network() -> None:
    """A third site between two that are far from each other."""
    far = [[0, 10, 1], [10, 0, 1], [1, 1, 0]]
    query = place(FIRE, rates=Rates({"A": 1.0, "C": 1.0}), latency=far)  # type: ignore[arg-type]
    assert query.site == "centre"


def test_at_is_as_it_was() -> None:
    text = FIRE + " AT room2"
    assert place(text).nodes == place(text, rates=Rates({"A": 1e6})).nodes
    assert place(text).site == "room2"


def test_not_at_holds_for_every_part() -> None:
    query = place(FIRE + " NOT AT room1")
    assert all(node.site != "room1" for node in query.nodes)


def test_any_of_holds_for_the_query_itself() -> None:
    query = place(FIRE + " AT ANY OF (room2, centre)", rates=Rates({"A": 1e6}))
    assert query.site in ("room2", "centre")
    assert sites(query)["A"] == "room1"


def test_what_runs_elsewhere_already_is_shared() -> None:
    """A node's name does not contain its site."""
    first = place(FIRE, rates=Rates({"A": 100.0, "C": 1.0}))
    (selection,) = [node for node in first.nodes if node.name != "fire"]
    again = place(
        FIRE.replace("fire", "again"),
        rates=Rates({"A": 100.0, "C": 1.0}),
        running={selection.name: "centre"},
    )
    assert {node.name: node.site for node in again.nodes}[selection.name] == "centre"


def test_a_stream_at_a_site_that_is_gone() -> None:
    query = bind("CREATE QUERY q AS SELECT v FROM A", lookup=KNOWN.get)
    around = Surroundings(NetworkSamples.unmeasured(("room2", "centre")))
    with pytest.raises(PlacementError, match=r"A may only be at room1, which is not there"):
        placed(query, lookup, around, placer("best"))


def test_a_pocket_is_placed_with_its_query_for_what_is_to_come() -> None:
    """Two samples, in each of which another of the rooms is near the centre: the operators can
    follow that, the pocket cannot."""
    near, far = 0.01, 0.1
    samples = np.full((2, 3, 3), far)
    for sample, room in zip(samples, (0, 1), strict=True):
        sample[room, 2] = sample[2, room] = near
        sample[0, 1] = sample[1, 0] = 3 * far
        np.fill_diagonal(sample, 0)
    text = FIRE.replace("INTO f() ON centre", "").replace("MASTER A ", "")
    around = Surroundings(NetworkSamples(SITES, samples), Rates({"A": 5.0, "C": 5.0}))
    query = bind(text, lookup=KNOWN.get)
    found, site = placed_with_pocket(query, "alarm", lookup, around, placer("best"))
    assert (site, found.site) == ("centre", "centre")
    assert all(node.site in SITES for node in found.nodes)
