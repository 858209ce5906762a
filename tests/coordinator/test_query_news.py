"""What the log and the terminal of `up` tell of streams and queries that get nowhere."""

from __future__ import annotations

from typing import Any

from anabranch.coordinator.status.query_news import QueryNews


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.news = QueryNews(self.said.append, lambda: self.now)
        self.sources: dict[str, dict[str, Any]] = {}
        self.states: dict[str, dict[str, str]] = {}

    def look(self, after_s: float = 1.0) -> list[str]:
        self.now += after_s
        sources = [{"stream": name, "error": None, "problem": ""} | one
                   for name, one in self.sources.items()]  # fmt: skip
        report = {"site": "store2", "sources": sources}
        said = len(self.said)
        self.news.look({"sites": [report], "tables": ["t"], "states": self.states})
        return self.said[said:]


def error(message: str) -> dict[str, Any]:
    return {"error": {"kind": "SourceError", "message": message, "place": "p", "remedy": "r"}}


def test_a_failed_stream_and_the_queries_that_it_stops() -> None:
    watched = Watched()
    watched.sources = {"s": {}}
    watched.states = {f"q{n}": {"state": "running", "reason": ""} for n in range(10)}
    assert watched.look() == []
    watched.sources = {"s": error("stream s: no number")}
    why = {"state": "no input", "reason": "stream s failed: no number"}
    watched.states = dict.fromkeys(watched.states, why)
    assert watched.look() == ["stream s at store2 failed: p: no number. r"]
    assert watched.look(2.0) == [
        "queries have no input: q0, q1, q2, q3, q4, q5, q6, q7 and 2 more"
    ]  # fmt: skip
    assert watched.look(60.0) == []
    watched.sources = {}
    watched.states = {"q0": {"state": "running", "reason": ""}}  # the others are dropped
    assert watched.look(1.0) == ["query goes on after 63 s: q0"]


def test_a_source_that_is_away_and_a_query_that_fails() -> None:
    watched = Watched()
    watched.sources = {"t": {"problem": "PostgreSQL does not answer"}}
    watched.states = {"q": {"state": "failed", "reason": "division by zero"}}
    assert watched.look() == ["query q failed: division by zero"]
    assert watched.look(2.0) == ["table t at store2 waits: PostgreSQL does not answer"]


def test_what_is_over_at_once_is_not_told() -> None:
    watched = Watched()
    watched.states = {"q": {"state": "no input", "reason": "site a is starting"}}
    assert watched.look() == []
    watched.states = {"q": {"state": "running", "reason": ""}}
    assert watched.look() == []
