"""A script's queries on the way to deadlines are placed together, by what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import functions

from anabranch.cli.queries.check import PlannedSites
from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.placement.admission import Admission
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.replies import ScriptChanges
from anabranch.coordinator.scripts.scripts import ScriptCheck
from anabranch.errors import AdmissionError
from anabranch.language.expressions.types import SketchTypes
from anabranch.language.source import Script
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.costs import Measured

EXAMPLES = Path(__file__).parents[2] / "examples"
SITES = ("room1", "room2")
STREAM = "CREATE STREAM S (Temp DOUBLE) FROM rate(tps = 10) AT room1;"


def check(text: str, known: dict[str, AnyDef] | None, sites: tuple[str, ...]) -> ScriptChanges:
    around: Any = PlannedSites(list(sites))
    placing = Placing(around, Catalog(IN_MEMORY), ClusterConfig())
    types = SketchTypes(dir(functions))
    return ScriptCheck(Script(text), known or {}, around, "/", list, placing, types=types).run()


def where(text: str, known: dict[str, AnyDef] | None = None) -> dict[str, str]:
    """Query → its site."""
    added = {one.name: one for one in check(text, known, SITES).add}
    return {name: one.site for name, one in added.items() if isinstance(one, QueryDef)}


def admitted(known: dict[str, AnyDef]) -> bool:
    try:
        Admission(known, Measured(), {}).decide()
    except AdmissionError:
        return False
    return True


def test_two_queries_that_do_not_fit_at_one_site_go_to_two() -> None:
    """10 ms of each, due in 15 ms."""
    text = STREAM + "".join(
        f"CREATE QUERY q{n} AS SELECT Temp + {n} AS t FROM S DEADLINE 15ms COST 10ms;" for n in "12"
    )
    assert set(where(text).values()) == set(SITES)


def test_an_earlier_query_makes_room_for_a_later_one_that_is_pinned() -> None:
    text = STREAM + (
        "CREATE QUERY free AS SELECT Temp + 1 AS t FROM S DEADLINE 15ms COST 10ms;"
        "CREATE QUERY fixed AS SELECT Temp + 2 AS t FROM S DEADLINE 15ms COST 10ms AT room1;"
    )
    assert where(text) == {"free": "room2", "fixed": "room1"}


def test_a_site_is_given_no_more_than_it_can_keep_up_with() -> None:
    """80 ms for each of ten tuples a second take 80 % of a slot."""
    text = "CREATE QUERY q{0} AS SELECT Temp + {0} AS t FROM S DEADLINE 10s COST 80ms PER TUPLE;"
    both = STREAM + text.format(1) + text.format(2)
    assert set(where(both).values()) == set(SITES)
    first = {one.name: one for one in check(STREAM + text.format(1), None, SITES).add}
    (second,) = check(text.format(2), first, SITES).add
    assert {first["q1"].site, second.site} == set(SITES)  # type: ignore[union-attr]


def test_what_a_deadline_waits_for_is_placed_with_it() -> None:
    """`near` has no deadline of its own. Beside `control` there is no time for it."""
    text = STREAM + (
        "CREATE QUERY control AS SELECT Temp FROM S DEADLINE 15ms COST 10ms AT room1;"
        "CREATE QUERY near AS SELECT Temp * 2 AS t FROM S COST 8ms;"
        "CREATE QUERY warning AS SELECT t FROM near DEADLINE 14ms COST 1ms AT room2;"
    )
    assert where(text) == {"control": "room1", "near": "room2", "warning": "room2"}
    alone = text.partition("CREATE QUERY warning")[0]
    assert where(alone)["near"] == "room1"


def test_the_collision_warning_is_placed() -> None:
    text = (EXAMPLES / "collision.sql").read_text()
    checked = check(text, None, ("sensors", "centre")).add
    near = next(one for one in checked if one.name == "near")
    assert near.site in ("sensors", "centre")  # type: ignore[union-attr]
    assert admitted({one.name: one for one in checked})


def test_nodes_of_a_join_are_placed_apart() -> None:
    """The selections stay with their streams, wherever the join goes, and its sink goes along."""
    text = (
        "CREATE STREAM A (v DOUBLE) FROM rate(tps = 1) AT room1;"
        "CREATE STREAM C (v DOUBLE) FROM rate(tps = 2) AT room2;"
        "CREATE QUERY fixed AS SELECT v FROM C DEADLINE 120ms COST 80ms AT room2;"
        "CREATE QUERY j AS SELECT A.v FROM A[5s], C[5s] WHERE A.v > 1 AND C.v > 1"
        " DEADLINE 150ms COST 70ms INTO jsonl(path = 'j');"
    )
    added = {one.name: one for one in check(text, None, SITES).add}
    query = added["j"]
    assert isinstance(query, QueryDef)
    assert query.site == "room1"
    assert {node.site for node in query.nodes if node.name.startswith("C~")} == {"room2"}
    assert admitted(added)


def test_explain_shows_where_it_would_be() -> None:
    known = {
        one.name: one
        for one in check(
            STREAM + "CREATE QUERY fixed AS SELECT Temp FROM S DEADLINE 15ms COST 10ms AT room1",
            None,
            SITES,
        ).add
    }
    text = "EXPLAIN CREATE QUERY q AS SELECT Temp + 1 AS t FROM S DEADLINE 15ms COST 10ms"
    assert "room2" in check(text, known, SITES).answers[0].text


def test_what_holds_nowhere_is_placed_all_the_same_for_admission_to_refuse() -> None:
    text = STREAM + "CREATE QUERY q AS SELECT Temp FROM S DEADLINE 5ms COST 10ms;"
    assert where(text) == {"q": "room1"}
