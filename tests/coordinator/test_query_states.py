"""What a query's state is called, from what sites report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.coordinator.base.reports import AnySite, ProtectionReport
from anabranch.coordinator.status.query_states import query_states
from anabranch.errors import ErrorReport
from anabranch.link.reports import Delay, SourceReport, TaskReport
from anabranch.plan.approximate import worker_queries
from anabranch.plan.catalog import AnyDef, PocketDef, StreamDef
from anabranch.plan.operators import Call
from anabranch.plan.service_levels import Standby
from anabranch.plan.spec import Program
from simulation.reports import a_source, a_task, assigned, silent, up
from tests.coordinator.test_approximate import made
from tests.plan.samples import TEMP, a_query, a_stream

JSONL = Call(name="jsonl", options={"path": "a.jsonl"})
HOT = a_query(sink=JSONL, sink_site="desk")
HOTTER = a_query("hotter", "hot")
KNOWN: dict[str, AnyDef] = {"Sensor1": a_stream(), "hot": HOT, "hotter": HOTTER}
FAILED = ErrorReport("SourceError", "stream Sensor1: line 9 is no row")


def task(name: str, site: str, state: str = "running", **said: Any) -> TaskReport:
    return a_task(name, site, state=state, **said)


def source(error: ErrorReport | None = None, **said: Any) -> SourceReport:
    return a_source("Sensor1", error=error, **said)


def held(reason: str, *, passes: bool) -> Delay:
    return Delay(reason, passes, 12.3)


def site(name: str, *parts: TaskReport | SourceReport, **said: Any) -> AnySite:
    """One that is `starting` or `unreachable` says nothing."""
    if said.get("state") in ("starting", "unreachable"):
        return silent(name, **said)
    return up(name, *parts, **said)


ROOM, DESK = site("room1", source()), site("desk", task("hot/sink", "desk"))
CENTRE = site("centre", task("hot", "centre"), task("hotter", "centre"))


def states(
    *sites: AnySite, known: dict[str, AnyDef] = KNOWN, **protection: ProtectionReport
) -> dict[str, tuple[str, str]]:
    found = query_states(sites, known, protection)
    return {name: (one.state, one.reason) for name, one in found.items()}


def test_all_is_well() -> None:
    assert states(ROOM, CENTRE, DESK) == {"hot": ("running", ""), "hotter": ("running", "")}


def test_what_its_sink_says_counts_when_it_is_done() -> None:
    done = site("centre", task("hot", "centre", "done"), task("hotter", "centre", "done"))
    assert states(ROOM, done, DESK)["hot"] == ("running", "")
    failed = site("desk", task("hot/sink", "desk", "failed", error=FAILED))
    assert states(ROOM, done, failed)["hot"] == ("failed", "")


def test_a_sink_whose_site_is_away_is_told() -> None:
    """It runs, and nothing is written; who reads it is not held up."""
    found = states(ROOM, CENTRE, site("desk", state="unreachable"))
    assert found["hot"] == (
        "sink away",
        "its sink is at desk, which is unreachable; results wait for it",
    )
    assert found["hotter"] == ("running", "")


def test_a_sink_that_takes_nothing_is_told() -> None:
    """With its reason, and for how long; what reads the query is not held up, but for its queue."""
    away = Delay("db:5432: connection refused", passes=True, since_s=12.4)
    found = states(ROOM, CENTRE, site("desk", task("hot/sink", "desk", away=away)))
    reason = "its sink waits: db:5432: connection refused (for 12 s so far)"
    assert found == {"hot": ("sink away", reason), "hotter": ("running", "")}
    behind = replace(away, reason="it lacks 20 rows. Put them back.", passes=False)
    found = states(ROOM, CENTRE, site("desk", task("hot/sink", "desk", away=behind, error=FAILED)))
    assert found["hot"] == ("stuck", "its sink cannot go on: it lacks 20 rows. Put them back")


def test_a_stream_whose_service_is_away_is_told() -> None:
    away = source(problem="no broker answers", problem_s=75.2)
    found = states(site("room1", away), CENTRE, DESK)
    reason = "stream Sensor1 waits: no broker answers (for 75 s so far)"
    assert found == {"hot": ("no input", reason), "hotter": ("no input", "query hot has no input")}


def test_what_is_read_again_after_a_restart_is_told() -> None:
    """And it is no trouble: the results come."""
    again = source(replayed=1_200, to_replay=34_000)
    found = states(site("room1", again), CENTRE, DESK)
    reason = "stream Sensor1: 1,200 of 34,000 recorded tuples are read again"
    assert found == {"hot": ("catching up", reason), "hotter": ("catching up", reason)}
    done = replace(again, replayed=34_000)
    assert states(site("room1", done), CENTRE, DESK)["hot"] == ("running", "")


def test_a_failed_stream_stops_all_that_read_it() -> None:
    found = states(site("room1", source(FAILED)), CENTRE, DESK)
    assert found["hot"] == ("no input", "stream Sensor1 failed: line 9 is no row")
    assert found["hotter"] == ("no input", "query hot has no input")


def test_a_stream_whose_site_starts_is_told() -> None:
    starting = site("room1", state="starting", problem="is starting (12 s so far)")
    found = states(starting, CENTRE, DESK)
    assert found["hot"] == ("no input", "stream Sensor1: site room1 is starting (12 s so far)")


@pytest.mark.parametrize(
    ("centre", "state", "reason"),
    [
        (
            site("centre", state="starting", problem="is starting (3 s so far)"),
            "starting",
            "site centre is starting (3 s so far)",
        ),
        (site("centre", state="unreachable"), "lost", "site centre is away"),
        (
            site("centre", state="stuck", held={"hot": held("no file", passes=False)}),
            "stuck",
            "it cannot go on: no file",
        ),
        (
            site("centre", held={"hot": held("no broker answers", passes=True)}),
            "waiting",
            "it waits: no broker answers (for 12 s so far)",
        ),
        (
            site("centre", state="stuck", held={"other": held("no file", passes=False)}),
            "waiting",
            "site centre is back and has not been given it again yet",
        ),
        (site("centre"), "waiting", "site centre is back and has not been given it again yet"),
        (
            site("centre", task("hot", "centre", "waiting")),
            "waiting",
            "site centre is putting it back",
        ),
    ],
)
def test_why_a_task_is_not_there(centre: AnySite, state: str, reason: str) -> None:
    assert states(ROOM, centre, DESK)["hot"] == (state, reason)


@pytest.mark.parametrize(
    ("reports", "state", "reason"),
    [
        (
            (ROOM, CENTRE, site("desk")),
            "sink away",
            "its sink: site desk is back and has not been given it again yet",
        ),
        (
            (ROOM, CENTRE, site("desk", task("hot/sink", "desk", "waiting"))),
            "sink away",
            "its sink is at desk, which is putting it back; results wait for it",
        ),
        (
            (site("room1"), CENTRE, DESK),
            "no input",
            "stream Sensor1: site room1 is back and has not been given it again yet",
        ),
    ],
    ids=["no sink yet", "its sink is put back", "no source yet"],
)
def test_all_of_it_is_put_back(reports: Any, state: str, reason: str) -> None:
    """One site after the other: until then the query is not simply running."""
    assert states(*reports)["hot"] == (state, reason)


@pytest.mark.parametrize(
    ("room2", "reason"),
    [
        (site("room2", state="unreachable"), "its part at room2: site room2 is away"),
        (site("room2", task("hot/part", "room2", "failed")), "its part at room2: failed"),
        (site("room2", task("hot/part", "room2")), ""),
    ],
)
def test_a_part_near_its_source(room2: AnySite, reason: str) -> None:
    part = a_query("hot/part", site="room2").written
    whole = HOT.model_copy(update={"nodes": (part, HOT.written)})
    found = states(ROOM, room2, CENTRE, DESK, known=KNOWN | {"hot": whole})["hot"]
    assert found == (("no input", reason) if reason else ("running", ""))


PLACES = ("room1", "centre", "desk")
SITE_STATES = st.sampled_from(["up", "starting", "stuck", "unreachable"])
TASK_STATES = st.sampled_from(["waiting", "running", "done"])


@settings(deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(PLACES, SITE_STATES)),
    st.dictionaries(st.sampled_from(["hot", "hotter", "hot/sink"]), TASK_STATES),
    st.booleans(),
)
def test_whoever_gets_nowhere_says_why(
    sites: dict[str, str], tasks: dict[str, str], read: bool
) -> None:
    """Whichever of the sites are up, and whatever of a query they have been given again."""
    homes = {"hot": "centre", "hotter": "centre", "hot/sink": "desk"}
    parts = [task(name, homes[name], state) for name, state in tasks.items()]
    reports = [
        site(
            name,
            *(
                [one for one in (*parts, *[source()] * read) if one.site == name]
                if state in ("up", "stuck")
                else ()
            ),
            state=state,
            problem="is as it is",
        )
        for name, state in sites.items()
    ]
    for state, reason in states(*reports).values():
        assert bool(reason) == (state not in ("running", "done"))


def test_a_standby_that_takes_over() -> None:
    known = KNOWN | {"hot": a_query(standby=Standby())}
    other = site("centre2", task("hot", "centre2", role="standby"))
    found = states(
        ROOM,
        site("centre", state="unreachable"),
        other,
        known=known,
        hot=assigned("centre", "centre2"),
    )
    assert found["hot"] == ("taking over", "centre2 after centre")


def test_a_stream_that_a_pocket_fills() -> None:
    program = Program(code="", path="p.py", class_name="P")
    filled = StreamDef(name="alarms", columns=TEMP, site="centre")
    pocket = PocketDef(name="P", input="hot", output="alarms", site="centre", program=program)
    known = KNOWN | {"alarms": filled, "P": pocket, "last": a_query("last", "alarms")}
    tasks = [task("hot", "centre"), task("hotter", "centre"), task("last", "centre")]
    found = states(ROOM, DESK, site("centre", *tasks, task("P", "centre", "failed")), known=known)
    assert found["last"] == ("no input", "pocket P is failed")


def test_an_approximate_query_is_one_and_its_workers_are_none() -> None:
    approximate = made()
    name = approximate.name
    one, two = worker_queries(approximate)
    stream = a_stream().model_copy(update={"name": approximate.reads[0]})
    known: dict[str, AnyDef] = {it.name: it for it in (stream, approximate, one, two)}
    away = site("two", state="unreachable")
    first = site(
        "one", task(one.name, "one"), task(f"{one.name}/sink", "one"), a_source(stream.name, "one")
    )
    second = site("two", task(two.name, "two"), task(f"{two.name}/sink", "two"))
    assert states(first, second, known=known) == {name: ("running", "")}
    assert states(first, away, known=known) == {
        name: ("recovering", f"worker {two.name}: site two is away")
    }
    assert states(site("one", state="unreachable"), away, known=known)[name][0] == "lost"
    failed = site("two", task(two.name, "two", "failed", error=FAILED))
    assert states(first, failed, known=known)[name] == ("failed", f"worker {two.name}: failed")
