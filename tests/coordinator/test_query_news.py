"""What the log and the terminal of `up` tell of streams and queries that get nowhere."""

from __future__ import annotations

from anabranch.coordinator.base.reports import QueryState
from anabranch.coordinator.status.news import QueryNews
from anabranch.errors import ErrorReport
from anabranch.link.reports import SourceReport
from simulation.reports import a_source, up


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.news = QueryNews(self.said.append, lambda: self.now)
        self.sources: list[SourceReport] = []
        self.states: dict[str, QueryState] = {}

    def look(self, after_s: float = 1.0) -> list[str]:
        self.now += after_s
        said = len(self.said)
        self.news.look([up("store2", *self.sources)], self.states, ["t"])
        return self.said[said:]


def test_a_failed_stream_and_the_queries_that_it_stops() -> None:
    watched = Watched()
    watched.sources = [a_source("s")]
    watched.states = {f"q{n}": QueryState("running") for n in range(10)}
    assert watched.look() == []
    error = ErrorReport("SourceError", "stream s: no number", "p", "r")
    watched.sources = [a_source("s", error=error)]
    why = QueryState("no input", "stream s failed: no number")
    watched.states = dict.fromkeys(watched.states, why)
    assert watched.look() == ["stream s at store2 failed: p: no number. r"]
    assert watched.look(2.0) == ["queries have no input: q0, q1, q2, q3, q4, q5, q6, q7 and 2 more"]
    assert watched.look(60.0) == []
    watched.sources = []
    watched.states = {"q0": QueryState("running")}  # the others are dropped
    assert watched.look(1.0) == ["query goes on after 63 s: q0"]


def test_a_source_that_is_away_and_a_query_that_fails() -> None:
    watched = Watched()
    watched.sources = [a_source("t", problem="PostgreSQL does not answer")]
    watched.states = {"q": QueryState("failed", "division by zero")}
    assert watched.look() == ["query q failed: division by zero"]
    assert watched.look(2.0) == ["table t at store2 waits: PostgreSQL does not answer"]


def test_what_is_over_at_once_is_not_told() -> None:
    watched = Watched()
    watched.states = {"q": QueryState("no input", "site a is starting")}
    assert watched.look() == []
    watched.states = {"q": QueryState("running")}
    assert watched.look() == []
