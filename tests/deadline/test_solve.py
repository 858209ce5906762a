"""The program (3) to (11) against trying every placement; its plans against an EDF run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.deadline.problem import (
    TRAFFIC_WEIGHT,
    DeadlineOutput,
    DeadlinePlan,
    DeadlineProblem,
    DeadlineSource,
    Operator,
    overloaded,
)
from anabranch.deadline.solve import merge, relaxation, solve
from anabranch.deadline.subdeadlines import assign
from anabranch.deadline.tasks import tasks_of
from bench.deadline.check import broken
from simulation.planned import planned_misses
from simulation.random_plans import random_problem
from simulation.use_case import collision, existing_placement
from tests.deadline.plans import exhaustive, placements, problems


@settings(max_examples=60, deadline=None)
@given(st.booleans().flatmap(lambda far: problems(far=far)), st.sampled_from(["lean", "full"]))
def test_the_program_finds_what_trying_everything_finds(
    problem: DeadlineProblem, form: str
) -> None:
    best = exhaustive(merge(problem).problem)
    plan = solve(problem, form=form)
    if best is None:
        assert plan is None
        return
    assert plan is not None
    assert plan.objective == pytest.approx(best, abs=1e-6)
    assert plan.bound == pytest.approx(best, abs=1e-6)
    assert plan.gap == 0


@settings(max_examples=40, deadline=None)
@given(problems(links=True))
def test_the_full_form_keeps_off_links_that_are_forbidden(problem: DeadlineProblem) -> None:
    best = exhaustive(merge(problem).problem)
    plan = solve(problem, form="full")
    assert (plan is None) == (best is None)
    if plan and best is not None:
        # Relays make traffic what it is, so only (3) itself is compared.
        assert plan.objective == pytest.approx(best, abs=2 * TRAFFIC_WEIGHT)


@settings(max_examples=60, deadline=None)
@given(problems(), st.lists(st.integers(0, 2_000_000), min_size=2, max_size=2))
def test_what_is_planned_holds_when_it_runs(problem: DeadlineProblem, offsets: list[int]) -> None:
    """Whenever the sources bring their waves, no result is late, and EDF's demand test agrees."""
    plan = solve(problem)
    if plan is None:
        return
    assert not broken(problem, plan, tasks_of(problem, plan))
    assert planned_misses(problem, plan, offsets) == 0


def test_large_plans_hold_when_they_run() -> None:
    for tight in (0.5, 2.5):
        problem = random_problem(3, 8, 60, tight)
        plan = solve(problem, limit_s=5)
        assert plan is not None
        assert not broken(problem, plan, tasks_of(problem, plan))
        assert planned_misses(problem, plan) == 0


@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_least_relaxation_holds_and_no_less_does(problem: DeadlineProblem) -> None:
    if solve(problem) is not None:
        return
    found = relaxation(problem)
    if found is None:
        assert all(
            overloaded(merge(problem).problem, one) for one in placements(merge(problem).problem)
        )
        return
    longer = found.with_deadlines(problem, found.promised, 1 + 1e-6)
    assert solve(longer) is not None
    stretched = {one.name: one.deadline * found.stretch for one in problem.outputs}
    assert solve(found.with_deadlines(problem, stretched, 1 + 1e-6)) is not None
    assert solve(found.with_deadlines(problem, stretched, 1 - 1e-3)) is None


def test_the_use_case_is_placed_as_in_the_paper() -> None:
    """Section 4.1: existing methods put O3 on node 1, deadlines on node 2, with every operator's
    laxity ratio the same."""
    problem = collision(15)
    existing, plan = existing_placement(problem), solve(problem)
    assert existing is not None
    assert existing["O3"] == "node1"
    assert plan is not None
    assert plan.placement["O3"] == "node2"
    assert plan.objective < TRAFFIC_WEIGHT
    assert {one.name: round(one.deadline, 9) for one in tasks_of(problem, plan)} == {
        "O1": 0.03,
        "O2": 0.03,
        "O21": 0.27,
        "O5": 3.0,
    }


@settings(max_examples=60, deadline=None)
@given(problems(far=True))
def test_the_way_between_sites_takes_its_part_of_the_deadline(problem: DeadlineProblem) -> None:
    """Sub-deadlines and latencies on every way to an output add up to its deadline at most."""
    plan = solve(problem)
    if plan is not None:
        assert not broken(problem, plan, tasks_of(problem, plan))
        at = problem.source_sites | plan.placement
        assert all(
            _longest(problem, plan, at, one.name, one.operator) <= one.deadline * (1 + 1e-6)
            for one in problem.outputs
        )


def _longest(
    problem: DeadlineProblem, plan: DeadlinePlan, at: dict[str, str], output: str, last: str
) -> float:
    """The longest way, by following each."""
    ways = [
        problem.latency.get((at[name], at[last]), 0.0) * (at[name] != at[last])
        + (_longest(problem, plan, at, output, name) if name in problem.by_name else 0.0)
        for name in problem.by_name[last].inputs
    ]
    return plan.deadlines[output, last] + max(ways)


def test_a_site_that_is_too_far_is_not_taken() -> None:
    """Two operators do not fit at one site; one of the two others is too far for the deadline."""
    operators = tuple(Operator(f"o{n}", 0.01, ("in",), ("a", "b", "c")) for n in range(2))
    outputs = tuple(DeadlineOutput(f"out{n}", f"o{n}", 0.015) for n in range(2))
    far = {("a", "b"): 0.01, ("a", "c"): 0.002}
    sites = {"a": 1, "b": 1, "c": 1}
    plan = solve(
        DeadlineProblem(sites, (DeadlineSource("in", "a"),), operators, outputs, latency=far)
    )
    assert plan is not None
    assert set(plan.placement.values()) == {"a", "c"}


def test_operators_one_by_one_would_not_fit() -> None:
    """(6) taken literally counts a chain's first operators again for each that follows."""
    problem = collision(15)
    placement = {one.name: one.sites[-1] for one in problem.operators}
    assert assign(problem, placement) is None
    merged = merge(problem).problem
    assert assign(merged, {one.name: one.sites[-1] for one in merged.operators}) is not None


def test_the_same_problem_has_the_same_plan() -> None:
    problem = random_problem(5, 4, 30, 1.0)
    assert solve(problem) == solve(problem)


def test_input_that_keeps_coming_is_a_limit_too() -> None:
    """Two operators that would fit once do not if each takes most of a slot all the time."""
    operators = tuple(Operator(f"o{n}", 0.01, ("in",), ("a", "b"), load=0.6) for n in range(2))
    outputs = tuple(DeadlineOutput(f"out{n}", f"o{n}", 1.0) for n in range(2))
    two = DeadlineProblem({"a": 1, "b": 1}, (DeadlineSource("in", "a"),), operators, outputs)
    plan = solve(two)
    assert plan is not None
    assert set(plan.placement.values()) == {"a", "b"}
    three = DeadlineProblem(
        two.sites,
        two.sources,
        (*operators, Operator("o2", 0.01, ("in",), ("a", "b"), load=0.6)),
        (*outputs, DeadlineOutput("out2", "o2", 1.0)),
    )
    assert solve(three) is None
    slots = DeadlineProblem({"a": 2, "b": 1}, three.sources, three.operators, three.outputs)
    assert solve(slots) is not None


@pytest.mark.parametrize(
    ("operator", "word"),
    [
        (Operator("o", 0.0, ("in",), ("a",)), "cost"),
        (Operator("o", 1.0, ("x",), ("a",)), "nobody makes"),
        (Operator("o", 1.0, ("in",), ("z",)), "no site"),
        (Operator("o", 1.0, ("in",), ()), "nowhere"),
        (Operator("o", 1.0, ("o",), ("a",)), "circle"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(operator: Operator, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        DeadlineProblem({"a": 1}, (DeadlineSource("in", "a"),), (operator,), ())
