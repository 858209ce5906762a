"""The deadline experiment: what it reports, and the queue's own cost."""

from __future__ import annotations

import pytest

from bench.commands.deadline import _show
from bench.deadline.experiment import queueing
from simulation.collision import COMBINATIONS


def test_the_queue_is_measured_with_all_waiting() -> None:
    assert 0 < queueing() < 1


def test_all_of_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {name: {"15": 0.1} for name in COMBINATIONS}
    hand = {
        name: {"control": 30.0, "warning": 300.0, "information": 580.0, "met": True}
        for name in COMBINATIONS
    }
    mip = {"sites": 8, "operators": 200, "tight": 2.5, "seconds": 1.25, "gap": 0.024, "misses": 0.0}
    kept = {"shed": 0.667, "late": 0.001, "other_late": 0.0, "worth": 0.98}
    none = mip | {"gap": None, "misses": None}
    _show(
        {
            "hand": hand,
            "figure7": rates,
            "mip": [mip, none],
            "queue_s": 3e-6,
            "real": rates,
            "scale": 1.5,
            "edf_misses": 0.004,
            "fifo_misses": 0.3,
            "load": 0.91,
            "overload": {"shed": kept, "not_shed": kept | {"late": 0.97}},
        }
    )
    shown = capsys.readouterr().out
    for text in (
        "DeadlineAlloc.EDF",
        "10.0%",
        "2.4%",
        "no plan",
        "0.40% (EDF)",
        "91% busy",
        "times × 1.5",
        "97.00%",
        "3.0 µs",
    ):
        assert text in shown
