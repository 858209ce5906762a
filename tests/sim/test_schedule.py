"""EDF against FIFO in virtual time: the paper's figures 3, 4, 6 and 7."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from anabranch.deadline.urgency import Allowance, most_valuable
from simulation.collision import COMBINATIONS, MS, Noise, figure_7, hand_example
from simulation.schedule import Policy, Result, Schedule, ScheduledTask, Step, Tuple


def test_the_hand_example_is_exact() -> None:
    """Figures 3 and 4 and section 4.1: only deadline placement with EDF meets both deadlines."""
    assert {name: hand_example(name) for name in COMBINATIONS} == {
        "DeadlineAlloc.EDF": {"control": 30 * MS, "warning": 300 * MS, "information": 580 * MS},
        "ExistingAlloc.EDF": {"control": 50 * MS, "warning": 300 * MS, "information": 560 * MS},
        "DeadlineAlloc.FIFO": {"control": 30 * MS, "warning": 480 * MS, "information": 400 * MS},
        "ExistingAlloc.FIFO": {"control": 50 * MS, "warning": 460 * MS, "information": 400 * MS},
    }


def figure_6(policy: Policy) -> list[Result]:
    """T1 = (O1, O2) with sub-deadline 2, T2 = (O3) with 5; O3 reads what O1 gives. Tuples come at 1
    and 3; every operator takes 1."""
    tasks = (
        ScheduledTask("T1", "node", (Step("O1", 1), Step("O2", 1)), 2, ("in",)),
        ScheduledTask("T2", "node", (Step("O3", 1),), 5, ("O1",)),
    )
    schedule = Schedule(tasks, policy)
    for at in (1, 3):
        schedule.arrive("in", [Tuple(at)], at)
    return [one for one in schedule.run(0) if one.operator != "in"]


def test_figure_6_is_exact() -> None:
    assert figure_6(Policy.EDF) == [
        Result("O1", 1, 2),
        Result("O2", 1, 3),  # (p1, T1)
        Result("O1", 3, 4),
        Result("O2", 3, 5),  # (p2, T1), before (p1, T2), which is due at 7
        Result("O3", 1, 6),
        Result("O3", 3, 7),
    ]


def test_figure_6_with_fifo_is_late() -> None:
    """(p2, T1) is due at 5."""
    done = {(one.operator, one.born): one.done for one in figure_6(Policy.FIFO)}
    assert done["O3", 1] == 4
    assert done["O2", 3] == 6


@pytest.mark.parametrize(
    ("combination", "paper"), list(zip(COMBINATIONS, (0.0211, 0.156, 0.409, 0.555), strict=True))
)
def test_figure_7_is_near_the_paper(combination: str, paper: float) -> None:
    assert abs(figure_7(combination, 15, 50, Noise()) - paper) <= 0.04


def test_without_noise_deadline_placement_misses_nothing() -> None:
    quiet = Noise(spread=0, pauses=0)
    rates = {name: figure_7(name, 15, 2, quiet) for name in COMBINATIONS}
    assert rates["DeadlineAlloc.EDF"] == 0
    assert all(rates[name] > 0.1 for name in COMBINATIONS[1:])


def test_a_more_urgent_instance_interrupts() -> None:
    tasks = (
        ScheduledTask("slow", "node", (Step("S", 10),), 100, ("a",)),
        ScheduledTask("fast", "node", (Step("F", 2),), 3, ("b",)),
    )
    schedule = Schedule(tasks, Policy.EDF)
    schedule.arrive("a", [Tuple(0)], 0)
    schedule.arrive("b", [Tuple(4)], 4)
    done = {one.operator: one.done for one in schedule.run(0)}
    assert (done["F"], done["S"]) == (6, 12)


def busy_site(policy: Policy) -> float:
    """Three queries, due in 0.1, 1 and 10 s, that take 10, 30 and 50 % of a site; the share of
    their results that is late."""
    load = {"fast": (10, 100, 1, 100), "medium": (25, 500, 6, 1000), "slow": (50, 4000, 40, 10_000)}
    tasks = tuple(
        ScheduledTask(name, "node", (Step(name, cost * MS),), due * MS, (f"{name}_in",))
        for name, (cost, _, _, due) in load.items()
    )
    schedule = Schedule(tasks, policy)
    for name, (_, every, count, _) in load.items():
        for at in range(0, 60_000, every):
            for _ in range(count):
                schedule.arrive(f"{name}_in", [Tuple(at * MS)], at * MS)
    results = [one for one in schedule.run(0) if one.operator in load]
    late = [one for one in results if one.done - one.born > load[one.operator][3] * MS]
    return len(late) / len(results)


def test_at_nine_tenths_of_a_site_edf_is_in_time_and_fifo_is_not() -> None:
    edf, fifo = busy_site(Policy.EDF), busy_site(Policy.FIFO)
    assert edf <= 0.01
    assert fifo >= max(0.1, 10 * edf)


def overloaded_site(*, shed: bool) -> tuple[dict[str, float], list[float]]:
    """180 cars a second of 10 ms each, of which 60 may pass, beside a query that takes a tenth of
    the site: the shares that are late, of results due in 500 and 100 ms, and what the cars that
    passed are worth."""
    due = {"cars": 500 * MS, "other": 100 * MS}
    tasks = tuple(
        ScheduledTask(name, "node", (Step(name, 10 * MS),), due[name], (f"{name}_in",))
        for name in due
    )
    schedule, allowance, random = Schedule(tasks, Policy.EDF), Allowance(60, 10**6), Random(3)
    passed: list[float] = []
    for at in range(0, 20_000_000, 100 * MS):
        schedule.arrive("other_in", [Tuple(at)], at)
    for at in range(0, 20_000_000, 16_667):  # three at a time
        worth = np.array([random.random() for _ in range(3)])
        kept = allowance.take(at, 3, lambda worth=worth: worth) if shed else 3  # type: ignore[misc]
        best = worth[most_valuable(worth, kept)]
        passed += best.tolist() if at > 3_000_000 else []
        for _ in best:
            schedule.arrive("cars_in", [Tuple(at)], at)
    results = [one for one in schedule.run(0) if one.operator in due]
    late = {
        name: [one.done - one.born > due[name] for one in results if one.operator == name]
        for name in due
    }
    return {name: sum(found) / len(found) for name, found in late.items()}, passed


def test_three_times_too_much_is_in_time_if_it_is_shed_and_nothing_else_suffers() -> None:
    late, passed = overloaded_site(shed=True)
    assert late == {"cars": 0.0, "other": 0.0}
    assert sum(passed) / len(passed) > 0.8  # the best third would be worth 5/6 on average
    drowned, _ = overloaded_site(shed=False)
    assert drowned["cars"] > 0.9
