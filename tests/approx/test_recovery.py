"""The approx paper's section 4.2: figure 8's example, to the number, and what it leaves open."""

import random

from anabranch.approx.recovery import Estimation, Recovery, Windows

FIGURE_8 = Windows(width=10, slide=5)
A, B = 0, 1


def test_figure_8() -> None:
    """Window 10, slide 5; B dies at 16 and is back at 19: [10, 20) and [15, 25) are estimated,
    [20, 30) is exact."""
    recovery = Recovery(FIGURE_8, workers=2)
    for end in (10, 15):
        recovery.delivered(A, end)
        recovery.delivered(B, end)
    assert recovery.last_whole == 15

    recovery.died(B)  # at 16
    assert recovery.recovering
    assert recovery.replaced(B, 19) == 30  # the end of [20, 30)
    assert recovery.damaged(B) == [20, 25]
    assert recovery.due() == []

    recovery.delivered(A, 20)
    lost = frozenset({B})
    assert recovery.due() == [Estimation(20, lost, last=15, lag=1)]
    recovery.estimated(20)
    assert recovery.recovering
    recovery.delivered(A, 25)
    assert recovery.due() == [Estimation(25, lost, last=15, lag=2)]
    recovery.estimated(25)
    assert not recovery.recovering

    recovery.delivered(A, 30)
    recovery.delivered(B, 30)
    assert recovery.last_whole == 30


def test_a_window_that_came_before_the_death_is_not_damaged() -> None:
    recovery = Recovery(FIGURE_8, 2)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    recovery.delivered(B, 15)
    recovery.died(B)
    recovery.replaced(B, 17)
    assert recovery.damaged(B) == [20, 25]


def test_a_late_result_makes_the_estimate_needless() -> None:
    recovery = Recovery(FIGURE_8, 2)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    recovery.died(B)
    recovery.replaced(B, 12)
    recovery.delivered(A, 15)
    recovery.delivered(B, 15)
    assert recovery.damaged(B) == [20]
    assert recovery.due() == []


def test_two_deaths_are_estimated_together() -> None:
    recovery = Recovery(FIGURE_8, 3)
    for worker in range(3):
        recovery.delivered(worker, 10)
    recovery.died(0)
    recovery.died(1)
    recovery.replaced(0, 11)
    recovery.delivered(2, 15)
    recovery.delivered(2, 20)
    both = frozenset({0, 1})
    assert recovery.due() == [Estimation(15, both, 10, 1), Estimation(20, both, 10, 2)]
    recovery.replaced(1, 16)
    assert recovery.damaged(0) == [15, 20]
    assert recovery.damaged(1) == [15, 20, 25]
    assert recovery.due() == [Estimation(15, both, 10, 1), Estimation(20, both, 10, 2)]


def test_nothing_waits_for_the_replacement() -> None:
    """What the dead one owes is estimated as the other delivers; its replacement begins behind."""
    recovery = Recovery(FIGURE_8, 2)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    recovery.died(B)
    assert recovery.due() == []
    recovery.delivered(A, 15)
    recovery.delivered(A, 20)
    lost = frozenset({B})
    assert recovery.due() == [Estimation(15, lost, 10, 1), Estimation(20, lost, 10, 2)]
    recovery.estimated(15)
    recovery.estimated(20)
    assert recovery.due() == []
    assert recovery.recovering
    assert recovery.replaced(B, 22) == 35
    assert recovery.damaged(B) == [25, 30]
    for end in (25, 30):
        recovery.delivered(A, end)
        recovery.estimated(end)
    assert not recovery.recovering
    recovery.delivered(A, 35)
    assert recovery.last_whole == 10  # what is estimated is not taken for measured
    recovery.delivered(B, 35)
    assert recovery.last_whole == 35


def test_one_that_was_not_dead_goes_on() -> None:
    recovery = Recovery(FIGURE_8, 2)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    recovery.died(B)
    recovery.delivered(A, 15)
    recovery.estimated(15)
    recovery.revived(B)
    recovery.delivered(A, 20)
    assert recovery.due() == []
    recovery.delivered(B, 20)
    assert recovery.last_whole == 20


def test_the_replacement_dies_as_well() -> None:
    recovery = Recovery(FIGURE_8, 2)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    recovery.died(B)
    recovery.replaced(B, 11)  # would deliver from 25 on
    recovery.died(B)
    assert recovery.replaced(B, 27) == 40
    assert recovery.damaged(B) == [15, 20, 25, 30, 35]


def test_a_worker_that_never_delivered() -> None:
    recovery = Recovery(FIGURE_8, 2)
    recovery.delivered(A, 10)
    recovery.died(B)
    recovery.replaced(B, 12)
    assert recovery.damaged(B) == [10, 15, 20]
    assert recovery.due() == [Estimation(10, frozenset({B}), None, 0)]


def test_nobody_waits_for_a_worker_without_keys() -> None:
    recovery = Recovery(FIGURE_8, 3, patience=4)
    for end in range(10, 35, 5):
        for worker in (A, B):
            recovery.delivered(worker, end)
        assert recovery.last_whole == (end if end == 30 else None)
    recovery.died(B)
    recovery.delivered(A, 35)
    assert recovery.due() == [Estimation(35, frozenset({B}), 30, 1)]


def test_a_worker_that_was_silent_is_waited_for_again() -> None:
    recovery = Recovery(FIGURE_8, 2, patience=4)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    for end in range(15, 45, 5):
        recovery.delivered(A, end)
    assert recovery.last_whole == 40
    recovery.delivered(B, 35)
    recovery.delivered(A, 45)
    assert recovery.last_whole == 40
    recovery.delivered(B, 45)
    assert recovery.last_whole == 45


def test_what_a_silent_worker_owes_is_estimated_when_it_dies() -> None:
    recovery = Recovery(FIGURE_8, 2, patience=4)
    for worker in (A, B):
        recovery.delivered(worker, 10)
    for end in range(15, 45, 5):
        recovery.delivered(A, end)
    recovery.died(B)
    lost = frozenset({B})  # of the last whole window as well: it says nothing about B
    assert recovery.due() == [Estimation(end, lost, None, 0) for end in range(15, 45, 5)]


def test_every_window_of_every_worker_comes_out_once_whatever_happens() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        windows = Windows(draw.choice((10, 15, 20)), 5)
        workers = draw.randrange(2, 5)
        recovery = Recovery(windows, workers, first=windows.width)
        begin = [windows.width] * workers
        out: dict[tuple[int, int], str] = {}
        for now in range(windows.width, 200, 5):
            for worker in range(workers):
                if draw.random() < 0.05:
                    recovery.died(worker)
                    begin[worker] = recovery.replaced(worker, now - 5 + draw.randrange(1, 20))
            for worker in range(workers):
                if now >= begin[worker]:
                    assert (now, worker) not in out
                    out[now, worker] = "exact"
                    recovery.delivered(worker, now)
            for one in recovery.due():
                for worker in one.lost:
                    assert (one.end, worker) not in out
                    out[one.end, worker] = "estimated"
                recovery.estimated(one.end)
        first = windows.width
        # Windows that a replacement is to deliver only later are still open.
        for end in range(first, 150, 5):
            for worker in range(workers):
                assert (end, worker) in out, (seed, end, worker)
