"""Our assignment: it deals keys out to as many workers as could be estimated at best, then swaps
them until all these can be; if that fails, it tries one worker fewer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.approx.assign.problem import AssignmentProblem, Filling, WorkerLoad, Workers
from anabranch.approx.gaussian import Indices

TIGHTER = (1.0, 1.25, 1.6, 2.0, 3.0)
"""With several failures at once the search is for one, with less tolerance; the best is kept."""
SMALL = 64
"""Up to so many keys, several starts are tried."""
STARTS = 12
PARTNERS = 24
WORST = 4


def swaps(problem: AssignmentProblem) -> Workers:
    if problem.previous is not None:
        kept = _from_previous(problem)
        if problem.moves is not None or all(problem.estimable(kept)):
            return kept
        fresh = swaps(replace(problem, previous=None))
        return max(kept, fresh, key=lambda workers: sum(problem.estimable(workers)))
    if problem.failures == 1:
        return _search(problem)
    attempts = [_search(_tighter(problem, factor)) for factor in TIGHTER]
    return max(attempts, key=lambda workers: sum(problem.estimable(workers)))


def _tighter(problem: AssignmentProblem, factor: float) -> AssignmentProblem:
    return AssignmentProblem(
        problem.precision, problem.tolerated / factor, problem.confidence, problem.capacities
    )


def _search(problem: AssignmentProblem) -> Workers:
    alone = problem.alone()
    best: tuple[int, Workers] = (-1, [])
    for alive in range(_most(problem, alone), -1, -1):
        if best[0] >= alive:
            break
        for start in range(STARTS if problem.keys <= SMALL else 1):
            loads = [WorkerLoad(problem, keys) for keys in _dealt(problem, alone, alive, start)]
            _improve(loads, _living(problem, alive))
            count = sum(load.excess() <= 0 for load in loads)
            if count > best[0]:
                best = (count, [load.keys for load in loads])
            if count >= alive:
                break
    return best[1]


def _most(problem: AssignmentProblem, alone: np.ndarray) -> int:
    """An upper bound of the number of workers that can be estimated: the smallest ones, filled with
    estimable keys.
    """
    left = int((alone <= 1).sum())
    spare = sum(problem.capacities) - problem.keys
    count = 0
    for size in sorted(problem.capacities):
        needed = max(size - spare, 0)
        spare -= size - needed
        if needed > left:
            break
        left -= needed
        count += 1
    return count


def _living(problem: AssignmentProblem, alive: int) -> list[int]:
    """The workers that the assignment makes estimable: the smallest ones."""
    order = sorted(range(len(problem.capacities)), key=lambda w: (problem.capacities[w], -w))
    return sorted(order[:alive])


def _dealt(problem: AssignmentProblem, alone: np.ndarray, alive: int, start: int) -> Workers:
    """The keys that are hardest to estimate go to the other workers. Of the rest the hardest come
    first, each to the worker where it does least harm.
    """
    living = _living(problem, alive)
    noise = np.random.default_rng(start).uniform(1, 1.5, problem.keys) if start else 1.0
    order = [int(key) for key in np.argsort(-alone * noise, kind="stable")]
    filling = Filling(problem, problem.capacities)
    room = sum(problem.capacities[w] for w in living)
    dead = [w for w in range(len(problem.capacities)) if w not in living]
    spare = max(sum(problem.capacities) - problem.keys, 0)
    aside = max(problem.keys - room, min(sum(alone > 1), sum(problem.capacities) - room))
    for key in order[:aside]:
        filling.add(next(w for w in dead if not filling.full()[w]), key)
    for key in order[aside:]:
        ratios = filling.ratios_with(key)
        ratios[filling.full()] = np.inf
        ratios[dead] = np.inf if spare == 0 else 1e30
        filling.add(int(np.argmin(np.round(ratios, 12))), key)
    return filling.workers()


def _improve(loads: list[WorkerLoad], living: list[int], moves: int | None = None) -> None:
    """Swaps keys as long as the living workers come closer to being estimable."""
    alive = set(living)
    left = 4 * len(loads[0].problem.tolerated) if moves is None else moves // 2
    stuck: set[int] = set()
    while left > 0:
        excess = {w: loads[w].excess() for w in living if w not in stuck}
        bad = [w for w in excess if excess[w] > 0]
        if not bad:
            return
        worst = max(bad, key=lambda w: excess[w])
        if _swap(loads, worst, alive):
            left -= 1
            stuck.clear()
        else:
            stuck.add(worst)


def _swap(loads: list[WorkerLoad], worst: int, alive: set[int]) -> bool:
    """Makes the best swap of a key of `worst` with another worker's; False if none helps."""
    mine = loads[worst]
    home = {key: w for w, load in enumerate(loads) if w != worst for key in load.keys}
    candidates: Indices = np.fromiter(home, dtype=np.intp)
    before = mine.excess()
    best: tuple[float, int, WorkerLoad, WorkerLoad] | None = None
    for place in _culprits(mine):
        without = mine.without(place)
        after = without.excess_with(candidates)
        for choice in np.argsort(after, kind="stable")[:PARTNERS]:
            if after[choice] >= before:
                break
            key = int(candidates[choice])
            other = loads[home[key]]
            swapped = other.without(other.keys.index(key)).with_key(mine.keys[place])
            cost = after[choice] - before
            if home[key] in alive:
                cost += swapped.excess() - other.excess()
            if cost < -1e-9 and (best is None or cost < best[0]):
                best = (float(cost), home[key], without.with_key(key), swapped)
    if best is None:
        return False
    _, partner, loads[worst], loads[partner] = best
    return True


def _culprits(load: WorkerLoad) -> list[int]:
    """The key that misses most, and the keys that would tell most about it if they were
    elsewhere.
    """
    worst = int(np.argmax(load.ratios()))
    gains = load.lost[worst] ** 2 / np.diag(load.lost)
    gains[worst] = np.inf
    return [int(place) for place in np.argsort(-gains, kind="stable")[:WORST]]


def _from_previous(problem: AssignmentProblem) -> Workers:
    """New keys join where they do least harm; then at most `moves` swaps follow."""
    assert problem.previous is not None
    filling = Filling(problem, problem.capacities)
    known: set[int] = set()
    for worker, keys in enumerate(problem.previous):
        for key in keys[: problem.capacities[worker]]:
            filling.add(worker, key)
            known.add(key)
    for key in sorted(set(range(problem.keys)) - known):
        ratios = filling.ratios_with(key)
        ratios[filling.full()] = np.inf
        filling.add(int(np.argmin(np.round(ratios, 12))), key)
    loads = [WorkerLoad(problem, keys) for keys in filling.workers()]
    _improve(loads, list(range(len(loads))), problem.moves)
    return [load.keys for load in loads]
