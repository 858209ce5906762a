"""Failover in virtual time: exactly-once whatever dies, pauses or loses sight of others.

A failing seed replays with `anabranch experiment simulate --trace SEED`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from anabranch.sim import plan
from anabranch.sim.faults import Crash, Cut, Move, Pause, Strike, draw
from anabranch.sim.operators import Taken
from anabranch.sim.reference import meaning
from anabranch.sim.run import simulate
from anabranch.stream.watermark import END_WATERMARK, START_WATERMARK
from tests.sim import mutants

SEEDS = 500


def test_every_seed_gives_each_sink_exactly_what_the_plan_means() -> None:
    failed = [one for one in map(simulate, range(1, SEEDS + 1)) if one.problem]
    assert not failed, "\n".join(f"seed {one.seed}: {one.problem}" for one in failed)


def test_a_run_is_a_function_of_its_seed() -> None:
    first, again = simulate(7, trace=True), simulate(7, trace=True)
    assert first.lines == again.lines
    assert first == again == simulate(7)


def test_seeds_bring_all_kinds_of_faults_and_operators() -> None:
    faults, kinds = set(), set()
    for seed in range(1, 60):
        rng = Random(seed)
        drawn = plan.draw(rng)
        faults |= {type(one) for one in draw(rng, drawn)}
        kinds |= {type(task.kind) for task in drawn.tasks}
    assert faults == {Crash, Cut, Move, Pause, Strike}
    assert len(kinds) == 5


@pytest.mark.parametrize("seed", range(20))
def test_operators_do_not_depend_on_how_input_is_cut(seed: int) -> None:
    """Steps of any size, and a restart at any point, against the plain meaning."""
    rng = Random(seed)
    drawn = plan.draw(rng)
    rows = {source.name: source for source in drawn.sources}
    for task in drawn.tasks:
        if task.kind is None or not all(name in rows for name in task.inputs):
            continue
        inputs = [rows[name] for name in task.inputs]
        wanted = meaning(task.kind, [list(one.rows) for one in inputs])
        operator = task.kind.make()
        operator.open(START_WATERMARK)
        got, taken = [], [0 for _ in inputs]
        needless, instant = tuple(taken), START_WATERMARK
        ends = False
        while not ends:
            if rng.random() < 0.1:
                operator = task.kind.make()
                operator.open(instant)
                taken = list(needless)
            step = []
            for index, one in enumerate(inputs):
                before = taken[index]
                after = taken[index] = min(len(one.rows), before + rng.randint(0, 7))
                numbered = [(p, *one.rows[p - 1]) for p in range(before + 1, after + 1)]
                mark = one.watermarks[after - 1] if after else START_WATERMARK
                step.append(
                    Taken(numbered, after, END_WATERMARK if after == len(one.rows) else mark)
                )
            produced = operator.step(step)
            got += produced.rows
            needless, instant = produced.needless, produced.instant
            ends = all(one.watermark == END_WATERMARK for one in step)
        assert got == wanted


@pytest.mark.parametrize(
    ("mutant", "seeds"),
    [
        (mutants.windows_are_forgotten, (2, 3)),
        (mutants.receipt_releases, (2, 3)),
        (mutants.level0_moves_the_point, (2, 4)),
        (mutants.nobody_is_superseded, (282, 286)),
        (mutants.outputs_are_counted, (2, 5)),
        (mutants.others_are_not_replayed, (5, 9)),
        (mutants.epochs_come_twice, (913,)),
        (mutants.released_counts_as_shipped, (3627,)),
        (mutants.points_are_told_first, (2, 6)),
        (mutants.old_connections_are_shipped_to, (11, 34)),
        (mutants.readers_are_not_told_of, (8340,)),
        (mutants.only_rulers_say_so, (5274,)),
    ],
)
def test_a_broken_protocol_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    seeds: tuple[int, ...],
) -> None:
    assert not any(simulate(seed).problem for seed in seeds)
    mutant(monkeypatch)
    assert any(simulate(seed).problem for seed in seeds)
