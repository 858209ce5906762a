"""APPROXIMATE: what it asks for, and what is refused with which words."""

from __future__ import annotations

import pytest

from anabranch.connectors import SINKS
from anabranch.errors import AnabranchError
from anabranch.language import CreateQuery, Script, parse
from anabranch.language.binding.approximate import SINK, WHY_NOT, bind_approximate
from anabranch.plan.catalog import ApproximateDef
from tests.language.fakes import bind

HEAD = "CREATE QUERY q AS SELECT Room, avg(Temp) AS t FROM Sensor1[30s SLIDE 10s] GROUP BY Room"
PLAIN = "CREATE QUERY q AS SELECT Temp FROM Sensor1"
INTO = "INTO postgres(url = 'postgresql://x', table = 't')"


def made(text: str, sites: tuple[str, ...] = ("one", "two", "three")) -> ApproximateDef:
    script = Script(text)
    (statement,) = parse(script)
    assert isinstance(statement, CreateQuery)
    return bind_approximate(script, statement, bind(text), sites)


def test_what_it_asks_for() -> None:
    found = made(f"{HEAD} APPROXIMATE WITHIN 0.5 CONFIDENCE 95% {INTO}")
    assert (found.asked.epsilon, found.asked.confidence, found.asked.failures) == (0.5, 0.95, 1)
    assert (found.keys, found.value, found.width_us, found.lags) == (("Room",), "t", 30_000_000, 3)
    assert [worker.query for worker in found.workers] == ["q/1", "q/2", "q/3"]
    twice = made(f"{HEAD} APPROXIMATE WITHIN 1 CONFIDENCE 90% FAILURES 2 ON a, b, c {INTO}")
    assert twice.asked.failures == 2


def test_every_sink_that_cannot_take_estimates_says_why() -> None:
    assert WHY_NOT.keys() == set(SINKS) - {SINK}


@pytest.mark.parametrize("sink", sorted(WHY_NOT))
def test_other_sinks_are_refused_and_what_to_do_is_said(sink: str) -> None:
    with pytest.raises(AnabranchError) as caught:
        made(f"{HEAD} APPROXIMATE WITHIN 0.5 CONFIDENCE 95% INTO {sink}(path = 'x')")
    assert WHY_NOT[sink] in str(caught.value)
    assert "Write INTO postgres(" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD} APPROXIMATE WITHIN 0.5 CONFIDENCE 95%", "estimates need a sink"),
        (f"{HEAD} APPROXIMATE WITHIN 0 CONFIDENCE 95% {INTO}", "an error must be above 0"),
        (f"{HEAD} APPROXIMATE WITHIN 1 CONFIDENCE 40% {INTO}", "cannot be promised"),
        (f"{HEAD} APPROXIMATE WITHIN 1 CONFIDENCE 95% FAILURES 0 {INTO}", "one, two or more"),
        (f"{HEAD} APPROXIMATE WITHIN 1 CONFIDENCE 95% FAILURES 3 {INTO}", "at least 4 sites"),
        (f"{HEAD} STANDBY APPROXIMATE WITHIN 1 CONFIDENCE 95% {INTO}", "do not go together"),
        (f"{PLAIN} APPROXIMATE WITHIN 1 CONFIDENCE 95% {INTO}", "only window results by key"),
    ],
)
def test_what_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(AnabranchError, match=message):
        made(text)
