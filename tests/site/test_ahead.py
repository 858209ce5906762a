"""Event times from the future are malformed; a clock that is set back does no harm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.disk.real import RealFolder
from anabranch.errors import SourceError
from anabranch.plan.catalog import HOUR_US, StreamDef
from anabranch.plan.operators import Call
from anabranch.site.sources.ingest import Ingest
from anabranch.site.sources.intake import ArrivalClock
from anabranch.site.sources.journal import Journal
from tests.link.support import eventually
from tests.site.fakes import SPEC_COLUMNS, an_ingest, an_outlet, source_table
from tests.site.test_durable_source import Bulk, given, run

NOW = time.time_ns() // 1000


def test_a_time_too_far_ahead_fails_the_stream() -> None:
    ingest = an_ingest([source_table([NOW, NOW + 3 * HOUR_US])], ahead_us=HOUR_US, historic=True)
    ingest.start()
    eventually(lambda: ingest.state == "failed")
    ingest.close()
    assert isinstance(ingest.error, SourceError)
    assert "is more than 1h ahead of the clock. Mend the row, set on_error" in str(ingest.error)
    assert ingest.outlet.last == 0


def test_or_is_left_out_and_what_follows_is_not_late() -> None:
    times = [NOW, NOW + 100 * 365 * 24 * HOUR_US, NOW + 1, NOW + HOUR_US // 2]
    ingest = an_ingest([source_table(times)], ahead_us=HOUR_US, on_error="skip", historic=True)
    run(ingest)
    assert (given(ingest), ingest.skipped, ingest.late) == ([0, 2, 3], 1, 0)


@pytest.mark.parametrize("cuts", ["1", "3"])
def test_a_replay_leaves_out_the_same_though_the_clock_has_gone_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: str
) -> None:
    """By the moment when a row came first, which is in the journal."""
    times = [NOW, NOW + 2 * HOUR_US, NOW + 1, NOW + 2]
    stream = StreamDef(
        name="S",
        columns=SPEC_COLUMNS,
        site="a",
        timestamp="ts",
        source=Call(name="log", options={"on_error": "skip"}),
    )

    def reading() -> Ingest:
        outlet = an_outlet("S")
        outlet.attach("c")
        log: Any = Bulk(cuts, times)
        journal = Journal(RealFolder(tmp_path), "j")
        return Ingest(stream, outlet, lambda stopped, skipped: log, 0.02, journal)

    first = reading()
    run(first)
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 5 * HOUR_US * 1000)
    again = reading()
    again.resume(0)
    run(again)
    assert given(first) == given(again) == [0, 2, 3]


class Clocks:
    wall = 10**18
    monotonic = 5 * 10**9

    def go(self, seconds: float, set_by: float = 0.0) -> None:
        self.wall += round((seconds + set_by) * 1e9)
        self.monotonic += round(seconds * 1e9)


def test_a_clock_that_was_set_forward_and_back_goes_on() -> None:
    clocks = Clocks()
    clock = ArrivalClock(lambda: clocks.wall, lambda: clocks.monotonic)
    start = clock.now_us()
    clocks.go(1, set_by=3600)
    assert clock.now_us() == start + 3_601_000_000
    clocks.go(1, set_by=-3600)
    assert clock.now_us() == start + 3_602_000_000
    for second in range(3, 10):
        clocks.go(1)
        assert clock.now_us() == start + (3600 + second) * 1_000_000
    clocks.go(1, set_by=7200)
    assert clock.now_us() == start + (7200 + 10) * 1_000_000


def test_a_process_that_begins_behind_what_was_shown_goes_on_from_there() -> None:
    clocks = Clocks()
    clock = ArrivalClock(lambda: clocks.wall, lambda: clocks.monotonic)
    shown = clock.now_us() + 60_000_000
    clock.begin_at(shown)
    assert clock.now_us() == shown
    clocks.go(2)
    assert clock.now_us() == shown + 2_000_000


def test_small_differences_between_the_clocks_do_not_add_up() -> None:
    clocks = Clocks()
    clock = ArrivalClock(lambda: clocks.wall, lambda: clocks.monotonic)
    for _ in range(1000):
        clocks.go(0.01, set_by=-0.0001)
        clock.now_us()
    for _ in range(1000):
        clocks.go(0.01, set_by=0.0001)
    assert clock.now_us() == clocks.wall // 1000
