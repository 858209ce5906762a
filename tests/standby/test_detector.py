"""When a primary counts as dead, and how often its standby asks."""

from __future__ import annotations

import pytest

from anabranch.standby.detector import LEAST_S, SHARE, Beat, Cadence, Detector, cadence

SILENT, ALIVE = Beat.SILENT, Beat.ALIVE


def verdicts(*beats: Beat, missed: int = 3) -> list[bool]:
    detector = Detector(missed)
    return [detector.heard(beat) for beat in beats]


def test_silence_must_last() -> None:
    assert verdicts(SILENT, SILENT, ALIVE, ALIVE, SILENT, SILENT) == [False] * 6
    assert verdicts(ALIVE, SILENT, SILENT, SILENT) == [False] * 3 + [True]


def test_certain_signs_cost_no_waiting() -> None:
    assert verdicts(ALIVE, Beat.REFUSED) == [False, True]
    assert verdicts(Beat.ABSENT) == [True]


def test_a_link_that_is_away_for_most_of_the_time_is_cut() -> None:
    """Though no silence is as long as one that counts by itself."""
    flapping = [SILENT, SILENT, ALIVE] * 4
    assert True in verdicts(*flapping)
    assert True not in verdicts(*[SILENT, ALIVE, ALIVE] * 20)


def test_a_recovery_makes_beats_faster_within_bounds() -> None:
    assert cadence(0.5, 4) == Cadence(0.5, 4)
    assert cadence(0.5, 4, 60.0) == Cadence(0.5, 4)
    two = cadence(0.5, 4, 2.0)
    assert two.silent_s == pytest.approx(SHARE * 2.0)
    assert (two.refused_s, two.missed) == (pytest.approx(0.3), 4)
    assert cadence(0.5, 4, 0.2) == Cadence(LEAST_S, 4)
    assert cadence(0.05, 4, 0.2) == Cadence(0.05, 4)
