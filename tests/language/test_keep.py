"""KEEP, SINCE and BEGINNING. The mistakes are in `scenarios/keep.txt`."""

from __future__ import annotations

import pytest

from anabranch.language import CreateStream, Script, bind_stream, parse
from anabranch.plan.keep import Keep, Past, show_time
from tests.language.fakes import bind

HEAD = "SELECT Temp FROM Sensor1"
DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "keep", "shown"),
    [
        ("KEEP 7d", Keep(us=7 * DAY), "7d"),
        ("KEEP 20GB", Keep(bytes=20 * 10**9), "20GB"),
        ("KEEP 90m 500 MB", Keep(us=5_400_000_000, bytes=500_000_000), "90m 500MB"),
        ("KEEP 1GiB 1 d", Keep(us=DAY, bytes=2**30), "1d 1.074GB"),
    ],
)
def test_streams_and_queries_keep(text: str, keep: Keep, shown: str) -> None:
    query = bind(f"{HEAD} {text} AT room1")
    assert query.keep == keep
    assert query.pinned
    script = Script(f"CREATE STREAM s (a INT) {text} FROM f() AT room1")
    (statement,) = parse(script)
    assert isinstance(statement, CreateStream)
    assert bind_stream(statement, script, default_site=None, base="").keep == keep
    assert str(keep) == shown


def test_shed_and_keep_stand_side_by_side() -> None:
    script = Script("CREATE STREAM s (a INT) SHED ABOVE 1/s KEEP BY a KEEP 1d FROM f() AT room1")
    (statement,) = parse(script)
    assert isinstance(statement, CreateStream)
    assert statement.keep
    assert statement.shed
    assert statement.shed.keep.sql == "a"


@pytest.mark.parametrize(
    ("text", "past"),
    [
        ("", None),
        ("BEGINNING", Past(text="BEGINNING")),
        ("[10s] BEGINNING", Past(text="BEGINNING")),
        ("SINCE '1970-01-02'", Past(since_us=DAY, text="SINCE '1970-01-02'")),
        (
            "SINCE '1970-01-01 01:00:00.5+01:00' AS s",
            Past(since_us=500_000, text="SINCE '1970-01-01 01:00:00.5+01:00'"),
        ),
        ("since 2 h", Past(back_us=7_200_000_000, text="SINCE 2h")),
    ],
)
def test_a_query_reads_the_past(text: str, past: Past | None) -> None:
    (port,) = bind(f"{HEAD}{'' if text.startswith('[') else ' '}{text}").written.inputs
    assert port.past == past


def test_columns_and_aliases_may_be_called_so() -> None:
    assert bind("SELECT since.Temp keep FROM Sensor1 since").columns[0].name == "keep"
    assert bind("SELECT s.Temp FROM Sensor1 AS s WHERE s.Temp > 1").columns[0].name == "Temp"


@pytest.mark.parametrize(
    ("us", "shown"), [(0, "1970-01-01 00:00:00"), (1, "1970-01-01 00:00:00.000001")]
)
def test_a_time_is_shown_as_it_is_asked_for(us: int, shown: str) -> None:
    assert show_time(us) == shown
    (port,) = bind(f"{HEAD} SINCE '{shown}'").written.inputs
    assert port.past
    assert port.past.since_us == us
