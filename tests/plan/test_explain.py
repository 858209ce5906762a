"""EXPLAIN, as a user sees it: from the sink down to the sources. The texts are in `explain/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.operators import Call
from anabranch.plan.service_levels import UNLIMITED, Standby
from anabranch.plan.tree import explain, show_call
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
    "standby": [
        a_stream(),
        a_query("hot", "Sensor1", HOT, FAHRENHEIT, standby=Standby(on="room2", batch=100)),
        a_query(
            "hotter",
            "hot",
            HOT,
            standby=Standby(recovery_us=2_000_000, overhead=0.3, compress="zstd"),
            sink=RATE,
            sink_site="hall",
        ),
    ],
}


@pytest.mark.parametrize("name", TREES)
def test_the_tree_as_text(name: str) -> None:
    *_, query = TREES[name]
    known = {one.name: one for one in TREES[name]}
    assert isinstance(query, QueryDef)
    assert explain(query, known.__getitem__) + "\n" == (TEXTS / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize(
    ("standby", "clause", "explained"),
    [
        (Standby(), "STANDBY", "batch tuned"),
        (
            Standby(on="room 2", compress="lz4"),
            "STANDBY ON `room 2` COMPRESS lz4",
            "on room 2, batch tuned, compress lz4",
        ),
        (
            Standby(on="centre2", batch=100, compress="zstd"),
            "STANDBY ON centre2 BATCH 100 COMPRESS zstd",
            "on centre2, batch 100, compress zstd",
        ),
        (Standby(batch=UNLIMITED), "STANDBY BATCH UNLIMITED", "batch unlimited"),
        (
            Standby(recovery_us=2_000_000, overhead=0.3),
            "STANDBY RECOVERY 2s OVERHEAD 30%",
            "batch tuned for recovery 2s and overhead 30%",
        ),
        (
            Standby(recovery_us=1_234_567),
            "STANDBY RECOVERY 1234567us",
            "batch tuned for recovery 1234567us",
        ),
        (
            Standby(batch=1, overhead=0.005, recovery_us=90_000_000),
            "STANDBY BATCH 1 RECOVERY 90s OVERHEAD 0.5%",
            "batch 1 checked against recovery 90s and overhead 0.5%",
        ),
    ],
)
def test_a_standby_as_text(standby: Standby, clause: str, explained: str) -> None:
    assert (str(standby), standby.explained()) == (clause, explained)


def test_calls_are_shown_as_they_are_written() -> None:
    assert show_call(Call(name="rate")) == "rate()"
    assert show_call(Call(name="f", options={"a": "x", "b": 1, "c": 1.5, "d": True})) == (
        "f(a = 'x', b = 1, c = 1.5, d = TRUE)"
    )
