"""A task that runs is given a standby, or has it taken away, while tuples pass and sites die:
nothing is lost, repeated or out of order."""

from __future__ import annotations

from simulation.run import simulate

SEEDS = 40


def test_nothing_is_lost() -> None:
    changes = 0
    for seed in range(SEEDS):
        outcome = simulate(seed, trace=True, standbys=6)
        assert not outcome.problem, (seed, outcome.problem, outcome.lines[-40:])
        changes += sum("do without a standby" in line for line in outcome.lines)
    assert changes > SEEDS
