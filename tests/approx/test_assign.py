"""One contract for all methods of assignment; the paper's setting; the optimum on small ones."""

from dataclasses import replace

import numpy as np
import pytest

from anabranch.approx.assign import METHODS
from anabranch.approx.assign.problem import AssignmentProblem, Filling, WorkerLoad, even, uniform
from anabranch.approx.gaussian import lost_covariance, precision_of, tolerated_variance
from bench.approx.data import synthetic_covariance
from tests.approx import literal
from tests.approx.test_gaussian import random_covariance

DIVISORS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)


def random_problem(seed: int, keys: int, workers: int) -> AssignmentProblem:
    draw = np.random.default_rng(seed)
    covariance = random_covariance(draw, keys)
    usual = np.median(1 / np.diag(precision_of(covariance)))
    epsilon = 1.96 * np.sqrt(usual) * float(draw.uniform(0.8, 2.0))
    return uniform(precision_of(covariance), epsilon, 0.95, workers)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_every_key_has_one_worker_and_no_worker_too_many(method: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    keys = int(draw.integers(2, 30))
    problem = random_problem(seed, keys, int(draw.integers(1, keys + 1)))
    made = METHODS[method](problem)
    assert sorted(key for worker in made for key in worker) == list(range(keys))
    assert tuple(map(len, made)) == problem.capacities
    assert METHODS[method](problem) == made


@pytest.mark.parametrize("method", METHODS)
def test_workers_with_room_to_spare(method: str) -> None:
    problem = replace(random_problem(3, 10, 4), capacities=(6, 3, 5, 1))
    made = METHODS[method](problem)
    assert sorted(key for worker in made for key in worker) == list(range(10))
    assert all(len(w) <= size for w, size in zip(made, problem.capacities, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_swaps_find_the_optimum_of_small_problems(seed: int) -> None:
    draw = np.random.default_rng(seed)
    keys, workers = ((6, 2), (6, 3), (7, 3), (8, 2))[seed % 4]
    covariance = random_covariance(draw, keys)
    usual = np.median(1 / np.diag(precision_of(covariance)))
    epsilon = float(1.96 * np.sqrt(usual) * draw.uniform(0.8, 2.0))
    problem = uniform(precision_of(covariance), epsilon, 0.95, workers)
    best = literal.optimum(covariance, epsilon, 0.95, even(keys, workers))
    assert sum(problem.estimable(METHODS["swaps"](problem))) == best


@pytest.mark.parametrize("workers", DIVISORS)
def test_figure_10_every_worker_can_be_estimated(workers: int) -> None:
    problem = uniform(precision_of(synthetic_covariance()), 1.0, 0.95, workers)
    assert sum(problem.estimable(METHODS["swaps"](problem))) == workers


def test_figure_11_at_a_narrow_bound() -> None:
    problem = uniform(precision_of(synthetic_covariance()), 0.65, 0.95, 10)
    assert sum(problem.estimable(METHODS["swaps"](problem))) == 10


def test_greedy_as_printed_sets_a_worker_aside() -> None:
    """Figure 9, line 10: m − |A| − 1 workers are alive at first."""
    problem = uniform(precision_of(synthetic_covariance()), 1.0, 0.95, 4)
    assert sum(problem.estimable(METHODS["greedy"](problem))) == 3


def test_two_failures_at_once_are_judged_on_the_union() -> None:
    precision = precision_of(synthetic_covariance())
    one = uniform(precision, 0.8, 0.95, 10)
    two = uniform(precision, 0.8, 0.95, 10, failures=2)
    spread = METHODS["swaps"](one)
    for worker, good in zip(spread, two.estimable(spread), strict=True):
        unions = [worker + other for other in spread if other != worker]
        worst = max(two.ratio(union, worker) for union in unions)
        assert good == (worst <= 1)
    assert sum(two.estimable(METHODS["swaps"](two))) == 10


def test_few_keys_move_when_the_model_changes() -> None:
    problem = uniform(precision_of(synthetic_covariance()), 0.65, 0.95, 10)
    bad = METHODS["h-worst"](problem)
    for moves in (0, 10, 40):
        made = METHODS["swaps"](replace(problem, previous=bad, moves=moves))
        moved = sum(len(set(new) - set(old)) for new, old in zip(made, bad, strict=True))
        assert moved <= moves
    free = METHODS["swaps"](replace(problem, previous=bad))
    assert sum(problem.estimable(free)) == 10


def test_new_keys_join_and_old_ones_stay() -> None:
    problem = random_problem(5, 12, 3)
    previous = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    made = METHODS["swaps"](replace(problem, previous=previous, moves=0))
    assert sorted(key for worker in made for key in worker) == list(range(12))
    for old, new in zip(previous, made, strict=True):
        assert set(old) <= set(new)


@pytest.mark.parametrize("seed", range(5))
def test_rank_one_updates_agree_with_inversion(seed: int) -> None:
    draw = np.random.default_rng(seed)
    problem = random_problem(seed, 9, 3)
    load = WorkerLoad(problem, [])
    filling = Filling(problem, problem.capacities)
    for key in draw.permutation(9)[:3].tolist():
        before = filling.ratios_with(key)[1]
        load = load.with_key(key)
        filling.add(1, key)
        assert load.lost == pytest.approx(lost_covariance(problem.precision, load.keys))
        assert before == pytest.approx(problem.ratio(load.keys))
    smaller = load.without(1)
    assert smaller.lost == pytest.approx(lost_covariance(problem.precision, smaller.keys))
    rest = np.array([key for key in range(9) if key not in smaller.keys])
    expected = [smaller.with_key(int(key)).excess() for key in rest]
    assert smaller.excess_with(rest) == pytest.approx(expected)


def test_a_problem_by_hand() -> None:
    """Two pairs of twins: each worker must have one of each pair."""
    covariance = np.kron(np.eye(2), np.array([[1, 0.99], [0.99, 1]]))
    problem = uniform(precision_of(covariance), 0.5, 0.95, 2)
    assert tolerated_variance(0.5, 0.95) == pytest.approx(0.0651, abs=1e-4)
    assert problem.estimable([[0, 1], [2, 3]]) == [False, False]
    assert problem.estimable([[0, 2], [1, 3]]) == [True, True]
    assert problem.estimable(METHODS["swaps"](problem)) == [True, True]
