"""Kept plan or job: the quicker one at each size, and no job where none can be."""

from __future__ import annotations

from anabranch.spark.kept.expressions import JOB, KEPT, PlanChoice


def test_what_is_quick_is_never_tried_as_a_job() -> None:
    choice = PlanChoice()
    for _ in range(1000):
        assert choice.pick(100) == KEPT
        choice.add(KEPT, 100, 0.001)


def test_what_takes_long_is_tried_once_and_the_quicker_way_is_kept() -> None:
    for kept_s, job_s, better in ((0.2, 0.1, JOB), (0.2, 0.3, KEPT)):
        choice = PlanChoice()
        for _ in range(5):
            assert choice.pick(10**6) == KEPT
            choice.add(KEPT, 10**6, kept_s)
        assert choice.pick(10**6) == JOB
        choice.add(JOB, 10**6, job_s)
        picked = []
        for _ in range(200):
            picked.append(choice.pick(10**6))
            choice.add(picked[-1], 10**6, {KEPT: kept_s, JOB: job_s}[picked[-1]])
        assert 190 < picked.count(better) < 200  # the other one is tried again now and then


def test_a_cold_start_is_not_taken_for_slowness() -> None:
    """The first instance takes as long as ten jobs, since the JVM compiles."""
    choice = PlanChoice()
    choice.add(KEPT, 1, 0.4)
    for _ in range(100):
        assert choice.pick(1) == KEPT
        choice.add(KEPT, 1, 0.0005)


def test_sizes_are_chosen_apart() -> None:
    choice = PlanChoice()
    for _ in range(5):
        choice.add(KEPT, 10**6, 0.5)
    choice.add(JOB, 10**6, 0.1)
    assert (choice.pick(10**6), choice.pick(1000)) == (JOB, KEPT)


def test_it_says_why() -> None:
    choice = PlanChoice()
    assert choice.why() == "nothing to evaluate yet"
    choice.add(KEPT, 1500, 0.002)
    assert choice.why() == "kept plan 2.0 ms for some 1,024 tuples"
    choice.add(JOB, 1500, 0.04)
    assert choice.why() == "kept plan 2.0 ms, job 40.0 ms for some 1,024 tuples"
