from __future__ import annotations

import signal

from anabranch.coordinator.status.news import SiteNews


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.news = SiteNews(self.said.append, lambda: self.now)

    def look(self, *alive: str, after_s: float = 1.0) -> list[str]:
        """What is said then."""
        self.now += after_s
        said = len(self.said)
        self.news.look(alive)
        return self.said[said:]


def test_a_process_that_dies_and_comes_back() -> None:
    watched = Watched()
    assert watched.look("a", "b") == []
    watched.news.died("a", -signal.SIGKILL)
    assert watched.said == ["site a died (killed by SIGKILL) and is being started again"]
    assert watched.look("b") == []
    assert watched.look("a", "b", after_s=11) == ["site a is up again after 12 s"]
    assert watched.look("a", "b") == []


def test_a_site_of_another_machine_goes_silent() -> None:
    watched = Watched()
    watched.look("a")
    assert watched.look() == ["site a does not answer any more"]
    assert watched.look() == []
    assert watched.look("a") == ["site a is up again after 2 s"]
