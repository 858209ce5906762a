"""A source that is read again gives the same tuples at the same positions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.disk.real import RealFolder
from anabranch.errors import SourceError
from anabranch.link.outlet import LiveOutlet
from anabranch.plan.catalog import StreamDef
from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Call
from anabranch.plan.timeliness import Shed
from anabranch.site.sources.ingest import Ingest
from anabranch.site.sources.journal import TRIM_EVERY, Entry, Journal
from anabranch.site.sources.shedder import Shedder
from tests.link.support import follow, values
from tests.site.fakes import SPEC_COLUMNS, an_outlet, source_table


def a_journal(path: Path) -> Journal:
    return Journal(RealFolder(path), "s.journal")


def entry(first: int) -> Entry:
    return Entry(first, {"0": first}, {"0": first + 5}, 1, 2, 3)


# -- the file ------------------------------------------------------------------------------------


def test_entries_are_there_again(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    for first in (1, 6, 11):
        journal.add(entry(first))
    journal.close()
    again = a_journal(tmp_path)
    assert again.entries == [entry(1), entry(6), entry(11)]
    again.add(entry(16))
    again.close()
    assert len(a_journal(tmp_path).entries) == 4


def test_half_a_line_counts_as_not_written(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    journal.add(entry(1))
    journal.close()
    with (tmp_path / "s.journal").open("ab") as file:
        file.write(b'1234abcd 7f\n{"first": 6, "be')
    again = a_journal(tmp_path)
    assert again.entries == [entry(1)]
    again.add(entry(6))
    again.close()
    assert a_journal(tmp_path).entries == [entry(1), entry(6)]


def test_where_a_reading_begins(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    assert journal.index(0) == 0
    for first in (1, 6, 6, 11):  # the second gave nothing
        journal.add(entry(first))
    journal.close()
    found = [journal.index(position) for position in (0, 1, 4, 5, 9, 10, 99)]
    assert found == [0, 0, 0, 2, 2, 3, 3]


def test_what_is_released_is_forgotten(tmp_path: Path) -> None:
    journal = a_journal(tmp_path)
    for n in range(TRIM_EVERY):
        journal.add(entry(1 + 5 * n))
        journal.trim(5 * n)
    assert len(journal.entries) < 5
    journal.add(entry(1 + 5 * TRIM_EVERY))
    journal.close()
    assert a_journal(tmp_path).entries == journal.entries


# -- reading again -------------------------------------------------------------------------------


class Log:
    """A replayable source: event times in a list, in tables cut at random. A cursor is an index."""

    finite = True

    def __init__(self, times: Sequence[int], upto: int, seed: int) -> None:
        self._times = times
        self._upto = upto
        self._rng = random.Random(seed)

    def start_cursor(self) -> int:
        return 0

    def read(self) -> Iterator[pa.Table]:
        return (table for table, _ in self.read_from(0))

    def read_from(self, cursor: int) -> Iterator[tuple[pa.Table, int]]:
        while cursor < self._upto:
            end = min(self._upto, cursor + self._rng.randint(1, 5))
            yield self.reread(cursor, end), end
            cursor = end

    def reread(self, begin: int, end: int) -> pa.Table:
        return source_table(self._times[begin:end], begin)


def reading(
    log: Any,
    outlet: LiveOutlet,
    journal: Journal | None,
    lateness_us: int = 2,
    shedder: Shedder | None = None,
) -> Ingest:
    stream = StreamDef(
        name="S", columns=SPEC_COLUMNS, site="a", source=Call(name="log"), timestamp="ts",
        lateness_us=lateness_us,
    )  # fmt: skip

    def make(stopped: threading.Event, skipped: Any) -> Any:
        return log

    return Ingest(stream, outlet, make, 0.02, journal, shedder=shedder)


def run(ingest: Ingest) -> None:
    ingest.start()
    ingest._thread.join(10)
    ingest.close()
    assert ingest.error is None


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(st.integers(0, 12), max_size=40),
    killed_at=st.integers(0, 40),
    released=st.integers(0, 40),
    seed=st.integers(0, 9),
)
def test_a_killed_reading_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    killed_at: int,
    released: int,
    seed: int,
) -> None:
    """What was read before is read again, late tuples left out again, whatever comes then."""
    path = tmp_path_factory.mktemp("j")
    whole = an_outlet("S")
    whole.attach("c")
    run(reading(Log(times, len(times), 0), whole, None))
    expected = values(follow(whole, "c", 0))

    first = an_outlet("S")
    first.attach("c")
    run(reading(Log(times, min(killed_at, len(times)), seed), first, a_journal(path)))
    start = min(released, first.last)

    second = an_outlet("S")
    again = reading(Log(times, len(times), seed + 1), second, a_journal(path))
    again.resume(start)
    second.attach("c", after=start)
    run(again)
    assert values(follow(second, "c", start)) == expected[start:]
    assert second.last == len(expected)


def a_shedder(most: int) -> Shedder:
    """Keeps the largest, which are the last of each table; `most` in an hour, so few."""
    asked = Shed(most=most, per_us=3_600_000_000, keep=Expr.of("S", "n"))
    spark: Any = None  # a column needs none
    return Shedder(spark, asked, pa.schema([("n", pa.int64())]))


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.integers(0, 12), max_size=40),
    most=st.integers(1, 30),
    released=st.integers(0, 40),
    seed=st.integers(0, 9),
)
def test_a_replay_sheds_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    most: int,
    released: int,
    seed: int,
) -> None:
    """Though whoever replays would let more pass, by the clock."""
    path = tmp_path_factory.mktemp("j")
    first, shedder = an_outlet("S"), a_shedder(most)
    first.attach("c")
    run(reading(Log(times, len(times), seed), first, a_journal(path), 20, shedder))
    expected = values(follow(first, "c", 0))
    assert shedder.shed == max(0, len(times) - most)
    assert len(expected) == min(most, len(times))
    start = min(released, first.last)

    second, again = an_outlet("S"), a_shedder(1000)
    replay = reading(Log(times, len(times), seed), second, a_journal(path), 20, again)
    replay.resume(start)
    second.attach("c", after=start)
    run(replay)
    assert values(follow(second, "c", start)) == expected[start:]


def test_what_cannot_be_read_again_cannot_go_on(tmp_path: Path) -> None:
    class Once:
        finite = True

        def read(self) -> Iterator[pa.Table]:
            return iter(())

    ingest = reading(Once(), an_outlet("S"), a_journal(tmp_path))
    ingest.resume(0)
    with pytest.raises(SourceError, match="stream S cannot be resumed: its source cannot be"):
        ingest.resume(7)
    ingest.close()
