"""What happened is told from two looks at the system, and one failure is one story."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from anabranch.coordinator.base.reports import QueryState, SystemStatus
from anabranch.errors import ErrorReport
from anabranch.face.events import Difference, differences, remembered
from anabranch.face.snapshot import snapshot
from anabranch.face.stories import Chronicle, stories, summary
from anabranch.link.reports import SourceReport, TaskReport
from simulation.reports import a_source
from tests.cli.statuses import assigned, down, site, standby, states, status, task

WELL = status(site("centre", task("q", "centre")), site("centre2", standby("q", "centre2")))
TAKEN = status(
    down("centre", "q"),
    site("centre2", task("q", "centre2", epoch=1)),
    protection=assigned("centre2", None, "no standby yet"),
)
BACK = status(
    site("centre", standby("q", "centre"), pid=5),
    site("centre2", task("q", "centre2", epoch=1)),
    protection=assigned("centre2", "centre"),
)


def kinds(before: SystemStatus, after: SystemStatus) -> list[str]:
    return [one.kind for one in differences(snapshot(before, 1.0), snapshot(after, 2.0))]


def test_nothing_happened():
    assert kinds(WELL, WELL) == []


def test_a_death_and_its_take_over():
    assert kinds(WELL, TAKEN) == ["site_down", "taken_over", "unprotected"]
    assert kinds(TAKEN, BACK) == ["site_up", "protected"]


def test_a_take_over_that_was_seen_half_done_is_told():
    """When the dead one is known to be, and nobody else has reported yet."""
    nobody = status(down("centre", "q"), site("centre2", standby("q", "centre2")))
    moments = [snapshot(one, at) for at, one in enumerate((WELL, nobody, TAKEN, BACK))]
    known, told = moments[0], []
    for after in moments[1:]:
        told += [one.kind for one in differences(known, after)]
        known = remembered(known, after)
    assert [kind for kind in told if kind != "unprotected"] == [
        "site_down",
        "taken_over",
        "site_up",
        "protected",
    ]


def test_another_standby_is_news_though_nobody_saw_it_missing():
    at_once = status(
        down("centre", "q"),
        site("centre2", task("q", "centre2", epoch=1)),
        site("centre3", standby("q", "centre3")),
        protection=assigned("centre2", "centre3"),
    )
    assert kinds(WELL, at_once) == ["site_down", "site_up", "taken_over", "protected"]


def taken(asked: bool, **timeline: float) -> TaskReport:
    """What a site that has stood by for `q` at centre tells of how it came to it."""
    return task("q", "centre2", epoch=1, primary="centre", asked=asked, timeline=timeline)


def test_a_move_of_a_protected_query_is_a_move():
    moved = status(
        site("centre"),
        site("centre2", taken(True, noticed=10.1, claimed=10.2, recovered=10.3)),
        protection=assigned("centre2", "centre"),
    )
    assert kinds(WELL, moved) == ["moved", "unprotected"]
    chronicle = Chronicle()
    chronicle.add(11.0, differences(snapshot(WELL, 10.0), snapshot(moved, 11.0)))
    assert not any(one.open for one in stories(chronicle.events))


def test_a_take_over_from_a_site_that_seems_to_live_is_one():
    """Its heartbeats still count when the standby has found it gone."""
    found = status(
        site("centre"),
        site("centre2", taken(False, noticed=10.1, claimed=10.2)),
        protection=assigned("centre2", None, "no standby yet"),
    )
    assert kinds(WELL, found) == ["noticed", "taken_over", "unprotected"]


def test_a_story_has_the_times_that_sites_report():
    chronicle = Chronicle()
    killed = Difference(kind="kill", text="site centre was killed", site="centre")
    chronicle.add(10.0, [killed])
    exact = {"noticed": 10.25, "claimed": 10.5}
    gone = status(
        down("centre", "q"),
        site("centre2", taken(False, **exact)),
        protection=assigned("centre2", None, "no standby yet"),
    )
    safe = status(
        down("centre"),
        site("centre2", taken(False, **exact, recovered=10.75)),
        site("centre3", standby("q", "centre3")),
        protection=assigned("centre2", "centre3"),
    )
    moments = [snapshot(one, at) for one, at in ((WELL, 9.9), (gone, 10.9), (safe, 12.0))]
    for before, after in pairwise(moments):
        chronicle.add(after.at, differences(before, after))
    story = next(one for one in stories(chronicle.events) if len(one.events) > 1)
    steps = [(one.kind, one.took_s) for one in story.events if one.kind != "unprotected"]
    assert steps == [
        ("kill", 0.0),
        ("noticed", 0.25),
        ("taken_over", 0.5),
        ("recovered", 0.75),
        ("site_down", pytest.approx(0.9)),
        ("protected", 2.0),
    ]
    assert not story.open  # protected again, though the site is not back
    assert summary(story) == (
        "noticed after 0.2 s, taken over after 0.5 s, recovered after 0.8 s,"
        " protected again after 2.0 s"
    )


def test_a_query_that_is_dropped_needs_no_protection_again():
    chronicle = Chronicle()
    chronicle.add(1.0, [Difference(kind="taken_over", text="…", query="q", site="centre")])
    chronicle.add(2.0, [Difference(kind="dropped", text="…", query="q")])
    (story,) = stories(chronicle.events)
    assert not story.open


def test_a_new_query_and_a_dropped_one():
    two = site("centre", task("q", "centre"), task("r", "centre"))
    both = states(q="running", r="running")
    more = status(two, site("centre2", standby("q", "centre2")), states=both)
    assert kinds(WELL, more) == ["created"]
    assert kinds(more, WELL) == ["dropped"]


def test_a_failure_says_why():
    error = ErrorReport("TaskError", "division by zero")
    failed = status(
        site("centre", task("q", "centre", state="failed", error=error)),
        site("centre2", standby("q", "centre2")),
        states=states(q="failed"),
    )
    (found,) = differences(snapshot(WELL, 1.0), snapshot(failed, 2.0))
    assert found.kind == "failed"
    assert "division by zero" in found.text


def test_shed_tuples_are_news():
    before = status(site("centre", task("q", "centre"), a_source("s", "centre", shed=3)))
    after = status(site("centre", task("q", "centre"), a_source("s", "centre", shed=10)))
    (found,) = differences(snapshot(before, 1.0), snapshot(after, 2.0))
    assert found.text == "stream s has shed 10 tuples so far"


def test_one_failure_is_one_story_with_its_durations():
    chronicle = Chronicle()
    moments = [snapshot(one, at) for one, at in ((WELL, 10.0), (TAKEN, 11.0), (BACK, 15.5))]
    for before, after in pairwise(moments):
        chronicle.add(after.at, differences(before, after))
    (story,) = stories(chronicle.events)
    assert [one.kind for one in story.events] == [
        "site_down",
        "taken_over",
        "unprotected",
        "site_up",
        "protected",
    ]
    assert (story.began, story.ended, story.open) == (11.0, 15.5, False)
    assert story.events[-1].took_s == 4.5


def test_a_standby_that_notices_first_begins_the_story():
    chronicle = Chronicle()
    chronicle.add(1.0, [Difference(kind="taken_over", text="…", query="q", site="centre")])
    chronicle.add(1.0, [Difference(kind="unprotected", text="…", query="q", site="centre2")])
    chronicle.add(3.0, [Difference(kind="site_down", text="…", site="centre")])
    (story,) = stories(chronicle.events)
    assert story.open
    chronicle.add(4.0, [Difference(kind="protected", text="…", query="q", site="centre2")])
    chronicle.add(9.0, [Difference(kind="site_up", text="…", site="centre")])
    chronicle.add(20.0, [Difference(kind="site_down", text="…", site="centre")])
    second, first = stories(chronicle.events)
    assert len(first.events) == 5
    assert len(second.events) == 1


def test_statements_stand_alone():
    chronicle = Chronicle(most=3)
    for number in range(5):
        chronicle.add(float(number), [Difference(kind="statement", text=f"SHOW {number};")])
    assert [one.title for one in stories(chronicle.events)] == ["SHOW 4;", "SHOW 3;", "SHOW 2;"]


def test_a_story_in_one_sentence():
    told = Chronicle()
    told.add(10.0, [Difference(kind="kill", text="site centre was killed", site="centre")])
    told.add(10.4, [Difference(kind="taken_over", text="", query="q", site="centre")])
    (story,) = stories(told.events)
    assert summary(story) == "taken over after 0.4 s, not over yet"
    told.add(12.0, [Difference(kind="protected", text="", query="q", site="attic")])
    told.add(15.5, [Difference(kind="site_up", text="", site="centre")])
    (story,) = stories(told.events)
    assert summary(story) == (
        "taken over after 0.4 s, protected again after 2.0 s, back after 5.5 s"
    )


def test_what_comes_again_and_again_is_kept_once():
    told = Chronicle()
    for number in range(5):
        text = f"checkpoint {number}"
        new = told.add(float(number), [Difference(kind="checkpoint", text=text, query="q")])
        assert [one.text for one in new] == [text]
    assert [one.text for one in told.events] == ["checkpoint 4"]


def source(name: str, error: str = "", problem: str = "") -> SourceReport:
    if not error:
        return a_source(name, "centre", problem=problem)
    told = ErrorReport("SourceError", f"stream {name}: {error}")
    return a_source(name, "centre", state="failed", error=told, failed_at=1.25)


def reading(one: SourceReport, state: str, reason: str = "", many: int = 1) -> SystemStatus:
    names = [f"q{n}" for n in range(many)]
    return status(
        site("centre", *(task(name, "centre") for name in names), one),
        states=dict.fromkeys(names, QueryState(state, reason)),
        protection={},
    )


def test_a_stream_that_fails_is_told_with_the_queries_that_it_stops():
    why = "stream s failed: topic t, partition 0, offset 7: no number"
    before = reading(source("s"), "running", many=12)
    after = reading(source("s", why.partition("failed: ")[2]), "no input", why, many=12)
    failed, stalled = differences(snapshot(before, 1.0), snapshot(after, 2.0))
    assert (failed.kind, failed.text, failed.at) == (
        "failed",
        "stream s at centre failed: topic t, partition 0, offset 7: no number",
        1.25,
    )
    assert stalled.kind == "stalled"
    assert stalled.text == (f"no input: q0, q1, q2, q3, q4, q5, q6, q7 and 4 more: {why}")
    assert kinds(after, after) == []
    assert [one.text for one in differences(snapshot(after, 2.0), snapshot(before, 3.0))] == [
        "stream s at centre goes on",
        "running again: q0, q1, q2, q3, q4, q5, q6, q7 and 4 more",
    ]


def test_a_source_that_waits_and_goes_on():
    well, waits = source("s"), source("s", problem="no Kafka broker answers at k:9092")
    moments = [snapshot(reading(one, "running"), 1.0) for one in (well, waits, well)]
    texts = [one.text for pair in pairwise(moments) for one in differences(*pair)]
    assert texts == [
        "stream s at centre waits: no Kafka broker answers at k:9092",
        "stream s at centre goes on",
    ]


def test_a_death_says_how_and_what_ran_there():
    starting = {"state": "starting", "problem": "is starting (0 s so far)"}
    gone = status(site("centre", **starting), endings={"centre": "killed by SIGKILL"})
    (found,) = [
        one
        for one in differences(snapshot(WELL, 1.0), snapshot(gone, 2.0))
        if one.kind == "site_down"
    ]
    assert found.text == "site centre died (killed by SIGKILL); it ran q"


def test_what_is_created_has_a_site_though_nobody_has_reported_it():
    more = status(
        site("centre", task("q", "centre")),
        site("centre2", standby("q", "centre2")),
        states=states(q="waiting", r="waiting"),
        homes={"r": "office"},
    )
    (found,) = [
        one
        for one in differences(snapshot(WELL, 1.0), snapshot(more, 2.0))
        if one.kind == "created"
    ]
    assert found.text == "query r created at office"


def test_one_that_was_dropped_and_created_between_two_looks():
    again = [replace(WELL, runs={"q": run}, homes={"q": "centre"}) for run in ("a", "b")]
    (found,) = differences(*(snapshot(one, 1.0) for one in again))
    assert found.text == "query q dropped and created again"
