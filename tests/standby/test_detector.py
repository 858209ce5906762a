from anabranch.standby.detector import Beat, Detector


def verdicts(*beats: Beat) -> list[bool]:
    detector = Detector(missed=3)
    return [detector.heard(beat) for beat in beats]


def test_silence_must_last() -> None:
    silent, alive = Beat.SILENT, Beat.ALIVE
    assert verdicts(silent, silent, alive, silent, silent, silent) == [False] * 5 + [True]


def test_certain_signs_cost_no_waiting() -> None:
    assert verdicts(Beat.ALIVE, Beat.REFUSED) == [False, True]
    assert verdicts(Beat.ABSENT) == [True]
