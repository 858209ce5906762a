"""How a query keeps its word, told from what sites and coordinator report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.coordinator.base.reports import (
    ApproximationReport,
    PlacementReport,
    SystemStatus,
    WorkerReport,
)
from anabranch.face.events import differences
from anabranch.face.model import QueryView
from anabranch.face.promises import told
from anabranch.face.snapshot import snapshot
from anabranch.link.reports import SourceReport, StageReport, TaskReport
from simulation.reports import a_source, tuned
from tests.cli.statuses import site, standby, states, status, task

FIRST = WorkerReport(
    "means/1",
    "centre",
    keys=6,
    bound=0.2,
    estimable=True,
    protection="estimates",
    why="learnt",
    drifted=False,
    damaged=0,
)
SECOND = replace(FIRST, query="means/2", site="centre2", bound=None, protection="restart point")
ESTIMATES = ApproximationReport(
    0.5, 0.95, (FIRST, SECOND), model=1, learnt_from=60, refresh=None, estimated=8, recovering=False
)
STAGE = StageReport(rows=1000, epoch=5, flushed=4, partials=30, slices=3, restarts=1)
TUNED = tuned(why="batch 100", overhead=0.25, recovery_s=0.6)


def query(*parts: TaskReport | SourceReport, **more: Any) -> QueryView:
    seen = status(
        site("centre", *parts), site("centre2", standby("q", "centre2", tuning=(TUNED,))), **more
    )
    found = snapshot(seen, 1.0).query("q")
    assert found
    return found


def lines(found: QueryView) -> dict[str, tuple[str, bool]]:
    return {what: (text, well) for what, text, well in told(found)}


def test_protection_says_what_was_asked_and_what_is_expected() -> None:
    found = query(task("q", "centre"))
    assert found.protection
    assert (found.protection.batch, found.protection.recovery_s) == (100, 0.6)
    assert lines(found)["protection"] == (
        "STANDBY: protected by centre2, batch 100; recovery 0.60 s, overhead 25% expected",
        True,
    )


def test_a_deadline_says_what_was_late_and_where_it_goes() -> None:
    due = {
        "deadline_ms": 300.0,
        "sub_deadline_ms": 120.0,
        "laxity_ms": 40.0,
        "judged": 1000,
        "late": 5,
        "overran": 0,
    }
    found = query(task("q", "centre", **due))
    assert lines(found)["deadline"] == (
        "due in 300 ms: 5 of 1,000 late (0.50%); least laxity 40 ms",
        False,
    )
    assert found.deadline
    assert [(one.task, one.sub_deadline_ms) for one in found.deadline.steps] == [("q", 120.0)]


def worker(name: str, at: str, **more: Any) -> TaskReport:
    """A worker's task; it is part of `means` in the catalog alone."""
    own = {"query": name.removesuffix("/sink"), "sink": None, "output": name}
    return task(name, at, **own | more)


def approximate_status(**more: Any) -> SystemStatus:
    """Of an approximate query as a coordinator tells it: with the names that its workers have."""
    return status(
        site(
            "centre",
            worker("means/1", "centre", p99_ms=7.0),
            worker("means/1/sink", "centre", sink="postgres", output=None),
        ),
        site(
            "centre2",
            worker("means/2", "centre2", p99_ms=9.0),
            worker("means/2/sink", "centre2", sink="postgres", output=None),
        ),
        states=states(means="running"),
        reads={"means": ("s",)},
        workers={"means": ("means/1", "means/2")},
        standbys={},
        protection={},
        **{"approximations": {"means": ESTIMATES}} | more,
    )


def test_an_approximate_query_is_one_query() -> None:
    seen = snapshot(approximate_status(), 1.0)
    (means,) = seen.queries
    assert (means.name, means.site, means.state) == ("means", "centre, centre2", "running")
    assert (means.rate_in, means.rows_out, means.p99_ms) == (10.0, 20, 2.0)
    assert {one.query for one in seen.tasks} == {"means"}
    assert means.estimates
    assert [(one.query, one.site, one.bound) for one in means.estimates.workers] == [
        ("means/1", "centre", 0.2),
        ("means/2", "centre2", None),
    ]
    assert lines(means)["estimates"] == (
        "within 0.5 with 95%: 1 of 2 workers can be estimated, 8 results were, off by up to 0.2",
        True,
    )


def test_estimates_are_events() -> None:
    before = snapshot(approximate_status(), 1.0)
    more = replace(ESTIMATES, estimated=20, recovering=True)
    after = snapshot(approximate_status(approximations={"means": more}), 2.0)
    (found,) = differences(before, after)
    assert (found.kind, found.query) == ("estimate", "means")
    assert found.text == "12 results of means estimated within 0.5"


def test_stages_and_placement() -> None:
    why = "40% of the cost; at room2 all would cost 12% more"
    found = query(
        task("q", "centre"),
        a_source("q.stage", "centre", rows=9, stage=STAGE),
        placement={"q": PlacementReport("q", "centre", 2.0, 0.4, "room2", 1.2, why)},
    )
    assert lines(found)["stage"][0].startswith("1,000 tuples in, epoch 5, checkpoint 4 on disk")
    assert [(one.site, one.why) for one in found.placed] == [("centre", why)]


def test_what_is_not_asked_for_is_not_told() -> None:
    assert lines(query(task("q", "centre"), standbys={})) == {}
