"""What `up` says of a system that reads again what it had."""

from __future__ import annotations

from anabranch.cli.sites.up import CatchingUp
from anabranch.coordinator.base.reports import SystemStatus
from simulation.reports import a_source, a_status, up


def status(*sources: tuple[str, int, int, float]) -> SystemStatus:
    told = [
        a_source(name, replayed=there, to_replay=whole, rate=rate)
        for name, there, whole, rate in sources
    ]
    return a_status(up("office", *told))


class Watched:
    """A second passes between two looks."""

    def __init__(self) -> None:
        self.now, self.said, self.status = 0.0, list[str](), status()
        self._catching_up = CatchingUp(lambda: self.status, self.said.append, lambda: self.now)

    def look(self, *sources: tuple[str, int, int, float], seconds: int = 1) -> bool:
        self.status = status(*sources)
        goes_on = True
        for _ in range(seconds):
            self.now += 1.0
            goes_on = self._catching_up.tell()
        return goes_on


def test_how_far_it_is_is_told_now_and_then_and_its_end() -> None:
    up = Watched()
    assert up.look(("sales", 5_000, 38_000, 1_000.0), ("few", 10, 10, 0.0), seconds=11)
    assert up.said == 2 * [
        "catching up: stream sales 5,000 of 38,000 recorded tuples, about 33 s left"
    ]
    assert not up.look(("sales", 38_000, 38_000, 1_000.0))
    assert up.said[-1] == "caught up after 12 s"


def test_what_is_soon_over_is_not_told() -> None:
    up = Watched()
    assert up.look(("sales", 5, 10, 5.0), seconds=2)
    assert not up.look(("sales", 10, 10, 5.0))
    assert up.said == []


def test_a_system_with_nothing_to_read_again_is_not_watched_for_ever() -> None:
    up = Watched()
    assert up.look(seconds=20)
    assert not up.look(seconds=20)
    assert up.said == []
