"""Admission by measured, hinted and guessed costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.coordinator.placement.admission import Admission, urgent
from anabranch.coordinator.placement.monitor import measured_by
from anabranch.errors import AdmissionError
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.costs import Measured, TaskCost
from anabranch.plan.service_levels import Shed
from simulation.reports import a_site, a_source, a_task
from tests.language.fakes import bind, define

STREAMS = define(
    "CREATE STREAM Sensor1 (Temp DOUBLE, Room STRING) FROM rate(tps = 100) AT room1;"
    "CREATE STREAM Sensor2 (Temp DOUBLE, Room STRING, n INT) FROM rate(tps = 100) AT room2"
)


def catalog(**queries: str) -> dict[str, AnyDef]:
    known: dict[str, AnyDef] = {one.name: one for one in STREAMS}
    for name, text in queries.items():
        known[name] = bind(f"CREATE QUERY {name} AS {text}")
    return known


def admission(known: dict[str, AnyDef], **slots: int) -> Admission:
    return Admission(known, Measured(), slots)


def test_without_deadlines_nothing_is_decided() -> None:
    decision = admission(catalog(q="SELECT Temp FROM Sensor1 AT room1")).decide()
    assert (decision.urgencies, decision.promised) == ({}, {})


def test_a_task_and_its_sink_share_the_deadline() -> None:
    """At one site they are one task of the plan, due when the whole is."""
    text = "SELECT Temp FROM Sensor1 DEADLINE 300ms INTO jsonl(path = 'x') AT room1"
    decision = admission(catalog(q=text)).decide(["q"])
    assert {name: one.summed_us for name, one in decision.urgencies.items()} == {
        "q": 300_000,
        "q/sink": 300_000,
    }
    assert decision.promised == {"q": 0.3}


def test_a_query_upstream_is_urgent_too() -> None:
    known = catalog(
        warm="SELECT Temp FROM Sensor1 AT room1",
        alarm="SELECT Temp FROM Sensor2 DEADLINE 300ms AT room2",
    )
    known["far"] = bind("CREATE QUERY far AS SELECT Temp FROM Sensor1 DEADLINE 100ms AT room2")
    decision = admission(known).decide(["far"])
    assert set(decision.urgencies) == {"alarm", "far"}
    assert decision.urgencies["far"].summed_us == 100_000
    assert decision.urgencies["alarm"].summed_us == 300_000


def test_a_query_that_cannot_hold_is_refused_with_what_would() -> None:
    known = catalog(q="SELECT Temp FROM Sensor1 DEADLINE 1ms COST 4ms AT room1")
    with pytest.raises(AdmissionError) as refused:
        admission(known).decide(["q"])
    assert refused.value.line() == (
        "query q cannot hold DEADLINE 1ms besides what runs already. What would: DEADLINE 4.02ms"
        " for q; all deadlines × 4.02; 25% of the input, or tasks that cost as much less;"
        " or BEST EFFORT."
    )


def test_what_is_proposed_is_admitted() -> None:
    known = catalog(q="SELECT Temp FROM Sensor1 DEADLINE 4.02ms COST 4ms AT room1")
    assert admission(known).decide(["q"]).promised == {"q": pytest.approx(0.00402)}


def test_best_effort_is_admitted_and_takes_nothing_from_others() -> None:
    known = catalog(
        sure="SELECT Temp FROM Sensor1 DEADLINE 5ms COST 4ms AT room1",
        maybe="SELECT Room FROM Sensor1 DEADLINE 5ms BEST EFFORT COST 4ms AT room1",
    )
    decision = admission(known).decide(["maybe"])
    assert decision.promised == {"sure": 0.005, "maybe": pytest.approx(0.010)}
    text = "SELECT Room FROM Sensor1 DEADLINE 5ms COST 4ms AT room1"
    with pytest.raises(AdmissionError, match="query other cannot hold"):
        admission(
            catalog(
                **{"sure": "SELECT Temp FROM Sensor1 DEADLINE 5ms COST 4ms AT room1", "other": text}
            )
        ).decide(["other"])


def test_input_that_a_site_cannot_keep_up_with_is_refused_whatever_the_deadline() -> None:
    known = catalog(q="SELECT Temp FROM Sensor1 DEADLINE 1h COST 20ms PER TUPLE AT room1")
    with pytest.raises(AdmissionError, match=r"site room1 \(busy 200%\) cannot keep up") as refused:
        admission(known).decide(["q"])
    assert refused.value.remedy == (
        "What would: one more slot at room1 (slots = 2); 50% of the input (SHED);"
        " or run the query elsewhere."
    )
    assert admission(known, room1=2).decide(["q"]).promised == {"q": 3600}


def test_a_stream_that_sheds_brings_no_more_than_that() -> None:
    known = catalog(q="SELECT Temp FROM Sensor1 DEADLINE 1h COST 20ms PER TUPLE AT room1")
    keep = bind("SELECT Temp FROM Sensor1").written.operators[-1].items[0].expr  # type: ignore[union-attr]
    shed = Shed(most=40, per_us=1_000_000, keep=keep)
    known["Sensor1"] = known["Sensor1"].model_copy(update={"shed": shed})
    assert admission(known).decide(["q"]).promised == {"q": 3600}


def test_what_was_measured_counts_more_than_what_was_said() -> None:
    task = a_task("q", rate_out=7.0, instances=20, fixed_ms=2.0, per_tuple_us=5.0)
    source = a_source("Sensor1", rate=50.0)
    measured = measured_by([a_site("room1", source, task)])
    assert measured.costs == {"q": TaskCost(0.002, 5e-6, "measured")}
    assert measured.rates == {"Sensor1": 50.0, "q": 7.0}
    few = measured_by([a_site("room1", replace(task, instances=2))])
    assert few.costs == {}
    known = catalog(q="SELECT Temp FROM Sensor1 DEADLINE 3ms COST 4ms AT room1")
    assert Admission(known, measured, {}).decide(["q"]).promised == {"q": 0.003}


def test_only_queries_whose_part_changed_are_told() -> None:
    known = catalog(
        q="SELECT Temp FROM Sensor1 DEADLINE 300ms AT room1",
        free="SELECT Temp FROM Sensor1 AT room1",
    )
    decision = admission(known).decide(["q"])
    (changed,) = urgent(list(known.values()), decision, known)
    assert isinstance(changed, QueryDef)
    assert changed.name == "q"
    known["q"] = changed
    assert urgent(list(known.values()), decision, known) == []


def test_what_was_tried_out_counts_more_than_a_guess_and_less_than_a_hint() -> None:
    known = catalog(
        far="SELECT Temp * 2 AS t FROM Sensor1 AT room1",
        q="SELECT Temp + 1 AS t FROM Sensor1 DEADLINE 3ms AT room1",
        said="SELECT Temp + 1 AS t FROM Sensor2 DEADLINE 9ms COST 1ms AT room2",
    )
    guessing = admission(known)
    assert [one.name for one in guessing.guessed()] == ["q"]  # nobody waits for the first
    tried = Measured(tried=dict.fromkeys(("q", "said"), TaskCost(0.0005, 1e-5, "tried")))
    decision = Admission(known, tried, {}).decide(["q"])
    assert decision.promised == {"q": 0.003, "said": 0.009}
    with pytest.raises(AdmissionError):
        guessing.decide(["q"])
    assert Admission(known, tried, {}).guessed() == []


def test_a_best_effort_and_what_has_no_deadline_get_what_is_left() -> None:
    """Each of them alone would take twice what the site has."""
    known = catalog(
        sure="SELECT Temp FROM Sensor1 DEADLINE 1s COST 1ms PER TUPLE AT room1",
        maybe="SELECT Room FROM Sensor1 DEADLINE 1s BEST EFFORT COST 20ms PER TUPLE AT room1",
        free="SELECT Room FROM Sensor1 COST 20ms PER TUPLE AT room1",
    )
    decision = admission(known).decide(["maybe"])
    assert decision.promised["sure"] == 1
    assert {name: one.best_effort for name, one in decision.urgencies.items()} == {
        "sure": False,
        "maybe": True,
    }
