"""News of where streams are come late, twice and out of order."""

from __future__ import annotations

from itertools import permutations

from anabranch.stream.routes import Route, Routes

HISTORY = [
    Route("a", 0, None, 0),
    Route("a", 0, "b", 1),
    Route("b", 1, None, 1),
    Route("b", 1, "c", 2),
    Route("b", 1, "a", 3),
    Route("a", 3, None, 3),
]


def test_whatever_the_order_the_newest_holds() -> None:
    for order in permutations(HISTORY):
        routes = Routes()
        for route in order:
            routes.learn({"S": route})
        assert routes["S"] == HISTORY[-1]


def test_only_news_are_news() -> None:
    routes = Routes()
    assert routes.learn({"S": HISTORY[2], "T": HISTORY[0]}) == {"S": HISTORY[2], "T": HISTORY[0]}
    assert routes.learn({"S": HISTORY[1], "T": HISTORY[1]}) == {"T": HISTORY[1]}
    assert routes.learn({"S": HISTORY[2]}) == {}


def test_acks_go_to_the_primary_and_its_standby() -> None:
    assert [route.sites for route in HISTORY[:2]] == [("a",), ("a", "b")]
