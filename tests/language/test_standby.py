"""STANDBY and the sink's site. The mistakes are in `scenarios/standby.txt`."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given

from anabranch.plan.operators import Call
from anabranch.plan.service_levels import UNLIMITED, Standby
from tests.language.fakes import bind
from tests.plan import samples

HEAD = "CREATE QUERY q AS SELECT Temp FROM Sensor1"


@pytest.mark.parametrize(
    ("clause", "asked"),
    [
        ("", Standby()),
        ("ON centre2", Standby(on="centre2")),
        ("on `room 2`", Standby(on="room 2")),
        ("BATCH 100", Standby(batch=100)),
        ("batch unlimited", Standby(batch=UNLIMITED)),
        ("RECOVERY 2s", Standby(recovery_us=2_000_000)),
        ("RECOVERY 1.5 min", Standby(recovery_us=90_000_000)),
        ("OVERHEAD 0%", Standby(overhead=0.0)),
        ("OVERHEAD 100%", Standby(overhead=1.0)),
        ("OVERHEAD 1.1 %", Standby(overhead=0.011)),
        ("COMPRESS", Standby(compress="zstd")),
        ("COMPRESS ZLIB", Standby(compress="zlib")),
        ("COMPRESS lz4 ON x", Standby(compress="lz4", on="x")),
        ("COMPRESS BATCH 5", Standby(compress="zstd", batch=5)),
        ("BATCH 5 RECOVERY 1s OVERHEAD 30%", Standby(batch=5, recovery_us=10**6, overhead=0.3)),
    ],
)
def test_each_part(clause: str, asked: Standby) -> None:
    query = bind(f"{HEAD} STANDBY {clause}")
    assert (query.standby, query.site, query.sink) == (asked, "room1", None)


@pytest.mark.parametrize("before", ["", "WHERE Temp > 50", "s WHERE s.Temp > 50", "AS standby"])
def test_it_follows_whatever_the_select_ends_with(before: str) -> None:
    assert bind(f"{HEAD} {before} STANDBY BATCH 5").standby == Standby(batch=5)


def test_it_follows_group_by_and_having() -> None:
    head = "SELECT Room, avg(Temp) AS t FROM Sensor1[1s] GROUP BY Room"
    assert bind(f"{head} STANDBY").standby == Standby()
    assert bind(f"{head} HAVING avg(Temp) > 5 STANDBY").standby == Standby()


def test_parts_and_clauses_come_in_any_order() -> None:
    parts = ("ON centre2", "BATCH 100", "RECOVERY 2s", "OVERHEAD 30%", "COMPRESS")
    asked = Standby(on="centre2", batch=100, recovery_us=2_000_000, overhead=0.3, compress="zstd")
    for order in permutations(parts):
        assert bind(f"{HEAD} STANDBY {' '.join(order)}").standby == asked
    for clauses in permutations(
        [f"STANDBY {' '.join(parts)}", "INTO f(a = 1) ON hall", "AT room2"]
    ):
        query = bind(f"{HEAD} {' '.join(clauses)}")
        assert (query.standby, query.site) == (asked, "room2")
        assert (query.sink, query.sink_site) == (Call(name="f", options={"a": 1}), "hall")


def test_at_behind_a_sink_is_the_site_of_the_query() -> None:
    query = bind(f"{HEAD} INTO f() AT room2")
    assert (query.site, query.sink_site) == ("room2", None)


def test_without_it_nothing_is_asked_for() -> None:
    query = bind(HEAD)
    assert (query.standby, query.sink_site) == (None, None)


@given(samples.standbys)
def test_its_text_reads_back_as_the_same(standby: Standby) -> None:
    assert bind(f"{HEAD} {standby}").standby == standby
