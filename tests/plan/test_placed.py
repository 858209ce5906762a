"""A query's sites: from its outline, the network and what is known of rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.errors import PlacementError
from anabranch.placement.methods import placer
from anabranch.placement.network import NetworkSamples
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, Relation
from anabranch.plan.costs import Rates
from anabranch.plan.placed import Surroundings, placed
from anabranch.plan.rules import rewritten
from anabranch.plan.spec import Program
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
    return settled(query, Surroundings(network, rates or Rates(), running=running or {}))


def settled(query: QueryDef, around: Surroundings) -> QueryDef:
    query = rewritten(query, lookup, around.running)
    if query.pinned:
        return query
    found = placed({query.name}, {**KNOWN, query.name: query}, around, placer("best"))[query.name]
    assert isinstance(found, QueryDef)
    return found


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
        settled(query, around)


def with_pocket(selectivity: float = 1.0, *more: str) -> dict[str, AnyDef]:
    """A pocket that reads fire's input and fills `alarm`, and queries behind it."""
    known = dict(KNOWN)
    text = FIRE.replace(" INTO f() ON centre", "").replace("MASTER A ", "")
    query = bind(text, lookup=KNOWN.get)
    known[query.name] = rewritten(query, known.__getitem__, {})  # type: ignore[arg-type]
    (alarm,) = define("CREATE STREAM alarm (message STRING) AT room1")
    known["alarm"] = alarm
    program = Program(code="", path="p.py", class_name="P", selectivity=selectivity)
    known["P"] = PocketDef(name="P", input="fire", output="alarm", site="room1", program=program)
    for text in more:
        reader = bind(text, lookup=known.get)
        known[reader.name] = rewritten(reader, known.__getitem__, {})  # type: ignore[arg-type]
    return known


def whole(known: dict[str, AnyDef], around: Surroundings, *new: str) -> dict[str, str]:
    """What is new → its site."""
    found = placed({"fire", "P", "alarm", *new}, known, around, placer("best"))
    return {name: one.site for name, one in found.items()}  # type: ignore[union-attr]


def test_a_pocket_is_placed_with_its_query_for_what_is_to_come() -> None:
    """Two samples, in each of which another of the rooms is near the centre: the operators can
    follow that, the pocket cannot."""
    near, far = 0.01, 0.1
    samples = np.full((2, 3, 3), far)
    for sample, room in zip(samples, (0, 1), strict=True):
        sample[room, 2] = sample[2, room] = near
        sample[0, 1] = sample[1, 0] = 3 * far
        np.fill_diagonal(sample, 0)
    around = Surroundings(NetworkSamples(SITES, samples), Rates({"A": 5.0, "C": 5.0}))
    assert whole(with_pocket(), around) == {"fire": "centre", "P": "centre", "alarm": "centre"}


LINE = NetworkSamples(SITES, np.array([[[0, 2.0, 1.0], [2.0, 0, 1.0], [1.0, 1.0, 0]]]))
TOLD = "CREATE QUERY told AS SELECT message FROM alarm INTO f() ON centre"


@pytest.mark.parametrize(("selectivity", "site"), [(0.01, "room1"), (100.0, "centre")])
def test_what_a_pocket_gives_counts_by_its_hint(selectivity: float, site: str) -> None:
    """P-46, P-27: rate × selectivity × width on its output link, whose reader is at the centre. One
    that gives little is where its input is, one that gives much where that goes."""
    known = with_pocket(selectivity, TOLD)
    rates = Rates({"A": 100.0, "C": 1.0, "fire": 1.0})
    found = whole(known, Surroundings(LINE, rates), "told")
    assert (found["P"], found["alarm"]) == (site, site)


def test_what_was_measured_of_a_pocket_counts_more_than_its_hint() -> None:
    known = with_pocket(100.0, TOLD)
    rates = Rates({"A": 100.0, "C": 1.0, "fire": 1.0}, {"P": 0.01})
    assert whole(known, Surroundings(LINE, rates), "told")["P"] == "room1"
    filled = Rates({"A": 100.0, "C": 1.0, "fire": 1.0, "alarm": 0.01})
    assert whole(known, Surroundings(LINE, filled), "told")["P"] == "room1"


def test_a_pocket_that_fills_a_stream_with_a_site_is_there() -> None:
    known = with_pocket(100.0, TOLD)
    found = placed({"fire", "P", "told"}, known, Surroundings(LINE), placer("best"))
    assert found["P"].site == "room1"  # type: ignore[union-attr]


def test_a_stream_that_programs_fill_is_near_those_who_read_it() -> None:
    """P-47: also without a pocket."""
    (pushed,) = define("CREATE STREAM pushed (message STRING) AT room1")
    known = {**KNOWN, "pushed": pushed}
    reader = bind("CREATE QUERY r AS SELECT message FROM pushed AT room2", lookup=known.get)
    known["r"] = rewritten(reader, known.__getitem__, {})  # type: ignore[arg-type]
    found = placed({"pushed"}, known, Surroundings(LINE), placer("best"))
    assert found["pushed"].site == "room2"  # type: ignore[union-attr]


def test_two_queries_of_a_script_are_one_problem() -> None:
    """The first alone would be where its stream is; the second, which reads it and writes at the
    centre, draws it there."""
    rates = Rates({"A": 1.0, "first": 10.0, "second": 10.0})
    known = dict(KNOWN)
    for text in (
        "CREATE QUERY first AS SELECT s, v + 1 AS w FROM A",
        "CREATE QUERY second AS SELECT s, w + 1 AS w FROM first INTO f() ON centre",
    ):
        query = bind(text, lookup=known.get)
        known[query.name] = rewritten(query, known.__getitem__, {})  # type: ignore[arg-type]
    around = Surroundings(LINE, rates)
    alone = {one: known[one] for one in (*KNOWN, "first")}
    assert placed({"first"}, alone, around, placer("best"))["first"].site == "room1"  # type: ignore[union-attr]
    both = placed({"first", "second"}, known, around, placer("best"))
    assert {one.site for one in both.values()} == {"centre"}  # type: ignore[union-attr]


def test_a_site_that_is_busy_is_given_no_more_when_something_is_created() -> None:
    query = rewritten(bind(FIRE, lookup=KNOWN.get), lookup, {})
    known = {**KNOWN, "fire": query}
    busy = replace(LINE, capacity={"room1": 0.0, "room2": 1.0, "centre": 1.0})
    rates = Rates({"A": 100.0, "C": 1.0})
    assert (
        placed({"fire"}, known, Surroundings(LINE, rates), placer("best"))["fire"].site == "room1"
    )  # type: ignore[union-attr]
    found = placed({"fire"}, known, Surroundings(busy, rates), placer("best"))["fire"]
    assert found.site != "room1"  # type: ignore[union-attr]
