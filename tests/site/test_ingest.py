"""What happens to a tuple before it has a position: event time, lateness, pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import SourceError
from anabranch.link.outlet import LiveOutlet
from anabranch.site.sources.ingest import Ingest
from anabranch.site.sources.reading import GRACE_US, LIVE_US
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch
from tests.link.support import eventually, follow
from tests.site.fakes import an_ingest, an_outlet, source_table, until_stopped

EXTREMES = [START_WATERMARK, START_WATERMARK + 1, -1, 0, 1, END_WATERMARK - 1, END_WATERMARK]
times_of = st.lists(st.one_of(st.integers(0, 12), st.sampled_from(EXTREMES)), max_size=25)
lateness_of = st.sampled_from([0, 1, 3, 10**6, 2**62])


def run(ingest: Ingest) -> None:
    ingest.start()
    ingest._thread.join(20)
    assert not ingest._thread.is_alive()


def followed(outlet: LiveOutlet) -> list[Batch]:
    return list(follow(outlet, "c", 0))


def judged(times: list[int], lateness: int) -> tuple[list[int], int]:
    """Tuple by tuple: the numbers of those that are in time, and how many are late."""
    timely, newest = [], START_WATERMARK
    for number, event_time in enumerate(times):
        if event_time >= newest - lateness:
            timely.append(number)
        newest = max(newest, event_time)
    return timely, len(times) - len(timely)


def cut(times: list[int], cuts: list[int]) -> Iterator[list[int]]:
    sizes = iter([*cuts, len(times)])
    while times:
        size = next(sizes)
        yield times[:size]
        times = times[size:]


def tables(times: list[int], cuts: list[int]) -> list[pa.Table]:
    parts, first = [], 0
    for part in cut(times, cuts):
        parts.append(source_table(part, first))
        first += len(part)
    return parts


# -- lateness ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(times_of, st.lists(st.integers(0, 6), max_size=25), lateness_of)
def test_lateness_is_judged_tuple_by_tuple_whatever_the_cuts(
    times: list[int], cuts: list[int], lateness: int
) -> None:
    """Later tuples are counted and dropped before they get a position; and watermark w
    means that no later tuple has `_ts` < w."""
    ingest = an_ingest(tables(times, cuts), lateness_us=lateness, historic=True)
    run(ingest)
    assert (ingest.state, ingest.error) == ("ended", None)
    timely, late = judged(times, lateness)
    batches = followed(ingest.outlet)
    got = [row for batch in batches for row in batch.data.to_pylist()]
    assert [row["n"] for row in got] == timely
    assert [row["_ts"] for row in got] == [times[number] for number in timely]
    assert ingest.late == late
    assert ingest.outlet.last == len(timely)
    held = START_WATERMARK
    for batch in batches:
        assert all(row["_ts"] >= held for row in batch.data.to_pylist())
        held = batch.watermark


def test_equal_times_are_in_time_and_one_less_is_late() -> None:
    ingest = an_ingest([source_table([5, 5, 5, 4, 5, 6, 5])], lateness_us=0, historic=True)
    run(ingest)
    assert (ingest.outlet.last, ingest.late) == (5, 2)
    assert ingest.report().late == 2


def test_the_farthest_event_time_does_not_end_the_stream() -> None:
    """The end has a watermark of its own; one strange tuple must not be taken for it."""
    parts = [source_table([1, END_WATERMARK]), source_table([END_WATERMARK], first=2)]
    ingest = an_ingest([*parts, until_stopped], historic=True)
    ingest.start()
    eventually(lambda: ingest.outlet.last == 3)
    assert not ingest.outlet.ended
    ingest.close()
    assert ingest.state == "stopped"


# -- event time of those that bring none ---------------------------------------------------------


def plain(first: int) -> pa.Table:
    return source_table([0] * 3, first).drop_columns(["_ts"])


def test_without_an_event_time_it_is_the_moment_of_entry() -> None:
    before = time.time_ns() // 1000
    ingest = an_ingest([plain(0), plain(3)], timestamp=None, historic=True)
    run(ingest)
    rows = [row for batch in followed(ingest.outlet) for row in batch.data.to_pylist()]
    assert [row["n"] for row in rows] == list(range(6))
    assert all(before <= row["_ts"] <= time.time_ns() // 1000 for row in rows)
    assert ingest.late == 0


def test_a_clock_that_is_set_back_makes_no_tuple_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(10**18, -(10**9))
    monkeypatch.setattr("anabranch.site.sources.intake.time.time_ns", lambda: next(clock))
    ingest = an_ingest([plain(0), plain(3), plain(6)], timestamp=None, historic=True)
    run(ingest)
    assert (ingest.late, ingest.outlet.last) == (0, 9)


# -- idle streams --------------------------------------------------------------------------------


def watermark(ingest: Ingest) -> int:
    return ingest.outlet._outlet.watermark


def now_us() -> int:
    return time.time_ns() // 1000


def test_a_live_stream_that_is_idle_follows_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source advances the watermark of an idle stream by the clock."""
    monkeypatch.setattr("anabranch.site.sources.reading.GRACE_US", 10_000)
    start = now_us()
    ingest = an_ingest([source_table([start]), until_stopped], lateness_us=5_000)
    ingest.start()
    eventually(lambda: watermark(ingest) > start + 50_000)
    assert watermark(ingest) <= now_us() - 15_000
    ingest.close()


def test_a_replay_of_old_data_is_not_outrun_by_the_clock() -> None:
    old = now_us() - 2 * LIVE_US
    ingest = an_ingest([source_table([old]), until_stopped])
    ingest.start()
    eventually(lambda: ingest.outlet.last == 1)
    time.sleep(0.1)
    assert watermark(ingest) == old
    ingest.close()


def test_a_stream_that_has_brought_nothing_yet_is_only_known_by_the_clock() -> None:
    with_time, without = an_ingest([until_stopped]), an_ingest([until_stopped], timestamp=None)
    start = now_us()
    for ingest in (with_time, without):
        ingest.start()
    eventually(lambda: watermark(without) >= start)
    assert watermark(with_time) == START_WATERMARK
    for ingest in (with_time, without):
        ingest.close()


def test_a_file_is_never_idle() -> None:
    ingest = an_ingest([source_table([now_us()]), until_stopped], historic=True)
    ingest.start()
    eventually(lambda: ingest.outlet.last == 1)
    first = watermark(ingest)
    time.sleep(0.2)
    assert watermark(ingest) == first
    ingest.close()


@pytest.mark.parametrize(
    ("more", "idle_us", "floor"),
    [
        ({}, 10_000, None),
        ({}, 500_000, 500_000 - GRACE_US - 300),
        ({}, 3 * GRACE_US, 2 * GRACE_US - 300),
        ({"upcoming": 10}, 500_000, 10 - 300),
        ({"upcoming": 900_000}, 500_000, 500_000 - 300),
    ],
)
def test_the_floor_of_an_idle_stream(more: dict[str, int], idle_us: int, floor: int | None) -> None:
    """Relative to the newest tuple: never above what may still come, less the lateness."""
    newest = 10**15
    given = {key: newest + value for key, value in more.items()}
    ingest = an_ingest([], lateness_us=300, heartbeat_s=0.02, **given)
    ingest.reading.intake.newest, ingest.reading.heard = newest, 1.0
    expected = START_WATERMARK if floor is None else newest + floor
    assert ingest.reading.idle_floor(idle_us, newest + idle_us) == expected


def test_tuples_that_wait_for_room_do_not_become_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source held up by its consumers is not idle: its clock must not run on without it."""
    monkeypatch.setattr("anabranch.site.sources.reading.GRACE_US", 0)
    outlet = an_outlet("S", limit=10)
    start = now_us()
    parts = [source_table([start]), source_table([start + 1], first=1)]
    ingest = an_ingest([*parts, until_stopped], outlet=outlet)
    ingest.start()
    eventually(lambda: outlet.last == 1)
    time.sleep(0.15)
    next(follow(outlet, "c", 0))
    eventually(lambda: outlet.last + ingest.late == 2)
    assert ingest.late == 0
    ingest.close()


# -- pace ----------------------------------------------------------------------------------------


def test_a_replay_keeps_the_distances_of_its_event_times() -> None:
    times = [i * 100_000 for i in range(21)]
    ingest = an_ingest(tables(times, [4] * 5), speed=10.0, historic=True)
    started = time.monotonic()
    ingest.start()
    eventually(lambda: ingest.outlet.last > 0)
    assert ingest.outlet.last < 21
    ingest._thread.join(5)
    assert 0.18 < time.monotonic() - started < 1.5
    rows = [row["n"] for batch in followed(ingest.outlet) for row in batch.data.to_pylist()]
    assert rows == list(range(21))


def test_disorder_does_not_slow_a_replay_down() -> None:
    ingest = an_ingest(
        [source_table([0, 50_000, 10_000, 20_000])], speed=1.0, lateness_us=10**6, historic=True
    )
    run(ingest)
    assert ingest.outlet.last == 4


def test_the_end_of_time_can_be_waited_for() -> None:
    """Tables often say 9999-12-31 for never."""
    never = 253_402_214_400_000_000
    ingest = an_ingest([source_table([1_700_000_000_000_000, never])], speed=1.0, historic=True)
    ingest.start()
    eventually(lambda: ingest.outlet.last == 1)
    time.sleep(0.05)
    assert (ingest.state, ingest.error) == ("running", None)
    ingest.close()
    assert ingest.state == "stopped"


# -- the end -------------------------------------------------------------------------------------


def breaking(error: Exception) -> list[Any]:
    def fail(stopped: threading.Event) -> None:
        raise error

    return [source_table([1, 2]), fail]


def test_a_source_that_fails_keeps_what_it_brought() -> None:
    error = SourceError("row 3 is malformed", place="a.csv", remedy="Mend it.")
    ingest = an_ingest(breaking(error), historic=True)
    run(ingest)
    assert ingest.state == "failed"
    assert ingest.error is not None
    assert ingest.error.line() == "a.csv: stream S: row 3 is malformed. Mend it."
    assert ingest.report().error.kind == "SourceError"
    assert ingest.outlet.last == 2
    assert not ingest.outlet.ended


def test_a_bug_in_a_source_is_a_failure_too(capfd: pytest.CaptureFixture[str]) -> None:
    ingest = an_ingest(breaking(KeyError("x")), historic=True)
    run(ingest)
    assert ingest.state == "failed"
    assert str(ingest.error) == "stream S: KeyError: 'x'"
    assert "Traceback" in capfd.readouterr().err


def test_stopping_is_not_the_end_of_the_stream() -> None:
    ingest = an_ingest([source_table([1]), until_stopped])
    ingest.start()
    eventually(lambda: ingest.outlet.last == 1)
    ingest.start()
    ingest.close()
    assert ingest.state == "stopped"
    assert not ingest.outlet.ended


def test_stopping_lets_a_source_go_that_waits_for_room() -> None:
    outlet = an_outlet("S", limit=10)
    ingest = an_ingest([source_table([1]), source_table([2], first=1)], outlet=outlet)
    ingest.start()
    eventually(lambda: outlet.last == 1)
    ingest.close()
    assert (ingest.state, outlet.last) == ("stopped", 1)
