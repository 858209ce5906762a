"""EXPLAIN, as a user sees it: from the sink down to the sources. The texts are in `explain/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.explain import explain
from anabranch.plan.operators import Call
from anabranch.plan.tree import show_call
from tests.plan.samples import FAHRENHEIT, HOT, a_query, a_stream

TEXTS = Path(__file__).parent / "explain"
RATE = Call(name="rate", options={"tps": 10})
CONSOLE = Call(name="console", options={"wide": False, "title": "Hot"})

TREES: dict[str, list[StreamDef | QueryDef]] = {
    "one_site": [a_stream(site="centre", source=RATE), a_query("hot", "Sensor1", HOT)],
    "unnamed": [a_stream(), a_query("", "Sensor1", FAHRENHEIT, site="room1")],
    "three_sites": [
        a_stream(),
        a_query("hot", "Sensor1", HOT, FAHRENHEIT, site="room1"),
        a_query("all", "hot", site="room2"),
        a_query("hotter", "all", HOT, site="centre", sink=CONSOLE),
    ],
}


@pytest.mark.parametrize("name", TREES)
def test_the_tree_as_text(name: str) -> None:
    *_, query = TREES[name]
    known = {one.name: one for one in TREES[name]}
    assert isinstance(query, QueryDef)
    assert explain(query, known.__getitem__) + "\n" == (TEXTS / f"{name}.txt").read_text("utf-8")


def test_calls_are_shown_as_they_are_written() -> None:
    assert show_call(Call(name="rate")) == "rate()"
    assert show_call(Call(name="f", options={"a": "x", "b": 1, "c": 1.5, "d": True})) == (
        "f(a = 'x', b = 1, c = 1.5, d = TRUE)"
    )
