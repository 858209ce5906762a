"""A limit on overhead holds from the beginning, however long the windows are."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch.config.cluster import ClusterConfig
from anabranch.link.messages import Wishes
from anabranch.link.meter import Flow, Meter
from anabranch.plan.operators import Aggregate
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.plan.windows import TimePanes
from anabranch.site.standby.tuning import Costs, Tuning
from anabranch.standby.cost import AssumedReleases, Hold, assumed
from anabranch.standby.detector import Cadence
from simulation.clock import Clock, Process


def test_tumbling_windows_let_go_of_all_they_hold_at_once() -> None:
    guess = assumed(Hold(10.0, 10.0), rate=100.0, held=400, ack_interval_s=0.25, lag_s=0.3)
    assert guess == AssumedReleases(10.0, 1_000.0, pytest.approx(30.0))


def test_sliding_ones_keep_the_rest() -> None:
    guess = assumed(Hold(10.0, 2.0), rate=100.0, held=0, ack_interval_s=0.25, lag_s=0.0)
    assert guess == AssumedReleases(2.0, 200.0, 800.0)


def test_without_windows_an_ack_lets_go_of_what_was_processed() -> None:
    guess = assumed(Hold(), rate=100.0, held=0, ack_interval_s=0.25, lag_s=0.1)
    assert guess == AssumedReleases(0.25, 25.0, pytest.approx(10.0))


def test_what_is_held_further_down_counts() -> None:
    guess = assumed(Hold(), rate=100.0, held=5_000, ack_interval_s=0.25, lag_s=0.1)
    assert guess.arrived + guess.left == pytest.approx(5_000)


def spec(width_us: int, slide_us: int) -> TaskSpec:
    aggregate = Aggregate(panes=TimePanes(width_us=width_us, slide_us=slide_us))
    source = TaskInput(stream="s", site="source", alias="s", columns=())
    return TaskSpec(
        name="q", query="q", site="one", inputs=(source,), operators=(aggregate,), columns=()
    )


@pytest.mark.parametrize(
    ("width_s", "slides", "runs_s"), [(10, 1, 50), (10, 5, 50), (60, 1, 130), (600, 1, 700)]
)
def test_overhead_holds_for_long_windows_from_the_first_one_on(
    width_s: int, slides: int, runs_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred tuples a second, one by one; the window lets go of a slide when it closes. What is
    shipped follows the rule of the outlet."""
    monkeypatch.setattr("anabranch.site.standby.tuning.LOOK_S", max(1.0, runs_s / 40))
    clock = Clock()
    process, meter = Process("two", clock, Random(0)), Meter()
    slide_s = width_s // slides
    last = shipped = released = sent = 0
    batches = [100]

    async def measured(index: int) -> Flow | None:
        found = meter.report(process.now(), "q")
        return found and replace(found, held=last - released)

    async def set_batch(index: int, batch: int) -> None:
        batches.append(batch)

    tuning = Tuning(
        process,
        spec(width_s * 1_000_000, slide_s * 1_000_000),
        ClusterConfig(),
        "two",
        Wishes(None, None, 0.1),
        Cadence(0.5, 4),
        measured,
        lambda: Costs(0.03, 1e-4, 0.002),
        set_batch,
    )
    for tick in range(10 * runs_s):
        clock.run(100 * (tick + 1), lambda: False)
        clock.now = 100 * (tick + 1)
        last += 10
        meter.appended(process.now(), 10, 560)
        due = (last - max(shipped, released)) // batches[-1] * batches[-1]
        if due > 0:
            sent += due
            shipped = max(shipped, released) + due
        second = (tick + 1) / 10
        if second >= width_s and second % slide_s == 0:
            released = int((second - width_s + slide_s) * 100)
            meter.released(process.now(), "q", last - released, last)
    tuning.close()
    (told,) = tuning.report()
    assert sent / last <= 0.12, (sent, last, batches)
    assert told.measured == (runs_s > 3 * width_s)
    assert ("assumed from a window of" in told.why) != told.measured
