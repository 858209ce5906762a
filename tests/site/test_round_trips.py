"""Round trips: every site has its turn, emulated delays count, who is gone is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.config.cluster import ClusterConfig, LinkConfig
from anabranch.errors import SiteError
from anabranch.link.emulation import EmulatedNetwork
from anabranch.link.message import Message
from anabranch.runtime.loop import process_loop
from anabranch.site import heartbeat
from anabranch.site.heartbeat import AT_A_TIME, LANDMARKS, NEIGHBOURS, RoundTrips, landmarks


class FakeNetwork:
    def __init__(self, names: list[str]) -> None:
        self.there = names
        self.dead: set[str] = set()

    def sites(self) -> list[str]:
        return list(self.there)

    def connect(self, site: str, request: Any) -> Any:
        raise AssertionError

    async def call(self, site: str, message: Message, seconds: float) -> Any:
        if site in self.dead:
            raise SiteError("away")


@pytest.fixture(autouse=True)
def never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_S", 1e6)


class Trips:
    def __init__(self, network: FakeNetwork, *links: LinkConfig) -> None:
        self.emulated = EmulatedNetwork(ClusterConfig(links=links))
        self._trips = RoundTrips("me", process_loop(), network, self.emulated)

    def round(self) -> dict[str, float]:
        process_loop().run(self._trips.round())
        return self._trips.report()


def test_with_many_sites_each_has_its_turn() -> None:
    network = FakeNetwork(["me", *(f"s{i}" for i in range(2 * AT_A_TIME))])
    trips = Trips(network)
    assert len(trips.round()) == AT_A_TIME
    assert trips.round().keys() == set(network.there) - {"me"}


def test_emulated_delays_count_both_ways_and_may_change() -> None:
    trips = Trips(
        FakeNetwork(["me", "far"]),
        LinkConfig(sender="me", receiver="far", delay_us=30_000_000),
        LinkConfig(sender="far", receiver="me", delay_us=20_000_000),
    )
    assert trips.round()["far"] == pytest.approx(50, abs=2)
    held = trips.emulated.link("far", "me")
    trips.emulated.change({"far": {"me": 200.0}})
    assert held.delay_s == 200.0
    assert trips.round()["far"] == pytest.approx(230, abs=2)


def test_who_does_not_answer_or_has_left_is_forgotten() -> None:
    network = FakeNetwork(["me", "a", "b"])
    trips = Trips(network)
    assert trips.round().keys() == {"a", "b"}
    network.dead.add("a")
    network.there.remove("b")
    assert trips.round() == {}


def test_of_many_sites_landmarks_and_a_few_neighbours_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """4.4: the latencies to d landmarks say where a site is. So a thousand sites make a number of
    calls that grows with their number, not with its square."""
    names = [f"s{i}" for i in range(999)]
    network = FakeNetwork(["me", *names])
    calls: list[str] = []
    near = set(names[500:550])  # so many that it is certain to meet some

    async def call(self: FakeNetwork, site: str, message: Message, seconds: float) -> None:
        calls.append(site)

    monkeypatch.setattr(FakeNetwork, "call", call)
    trips = Trips(network)
    trips.emulated.change(
        {
            "me": {name: 1.0 if name in near else 5.0 for name in names},
            **{n: {"me": 0.0} for n in names},
        }
    )
    for _ in range(600):
        known = trips.round()
        assert len(known) <= LANDMARKS + 2 * NEIGHBOURS
    marks = set(landmarks(network.there)) - {"me"}
    assert marks <= known.keys()
    assert near & known.keys(), "what is near and was met once is kept"
    assert len(calls) <= 600 * 2 * AT_A_TIME


def test_landmarks_are_the_same_for_all_and_stay() -> None:
    names = [f"s{i}" for i in range(200)]
    there = landmarks(names)
    assert landmarks(reversed(names)) == there
    gone = [one for one in names if one != there[0]]
    assert set(there[1:]) <= set(landmarks(gone))
