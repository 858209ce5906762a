"""A source that is read again gives the same tuples at the same positions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors import Source
from anabranch.disk.real import RealFolder
from anabranch.errors import CannotResume
from anabranch.link.outlet import LiveOutlet
from anabranch.plan.catalog import StreamDef
from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Call
from anabranch.plan.service_levels import Shed
from anabranch.site.sources.entries import JournalEntry, ReadingState
from anabranch.site.sources.ingest import Ingest
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.shedder import Shedder
from anabranch.stream.restart import FOREVER
from tests.link.support import follow, values
from tests.site.fakes import SPEC_COLUMNS, an_outlet, source_table


def a_journal(path: Path, segment: int = 2000) -> Journal:
    return Journal(RealFolder(path), "s.journal", segment)


def state(n: int, next: int) -> ReadingState:
    return ReadingState({"0": 10 * n, "1": n}, next, n - 5, n // 2, 100 * n)


def entries(count: int, each: int = 5) -> list[JournalEntry]:
    """Of `each` tuples; every fourth gave none."""
    found = []
    next = 1
    for n in range(count):
        given = each if n % 4 != 1 else 0
        found.append(JournalEntry(state(n, next), state(n + 1, next + given), 7, n * 999))
        next += given
    return found


def filled(path: Path, count: int, segment: int) -> Journal:
    journal = a_journal(path, segment)
    for entry in entries(count):
        journal.add(entry)
    return journal


@pytest.mark.parametrize("segment", [1, 2, 3, 2000])
def test_entries_are_there_again(tmp_path: Path, segment: int) -> None:
    filled(tmp_path, 3, segment).close()
    again = a_journal(tmp_path, segment)
    assert list(again.since(0)) == entries(3)
    for entry in entries(9)[3:]:
        again.add(entry)
    again.close()
    whole = a_journal(tmp_path, segment)
    assert list(whole.since(0)) == entries(9)
    assert whole.state == entries(9)[-1].after
    assert whole.last == entries(9)[-1].last


@pytest.mark.parametrize(
    "cursors",
    [
        [3, 9, None],
        [{"0": 5}, {"0": 9}, {"0": 9, "1": 4}, {"0": 2, "1": 4}],
        [{"file": "a", "at": None}, {"file": "a", "at": [5, 1]}, {"file": "b", "at": [1, 1]}],
        [{"end": True}, {"end": 1}, {"start": 0}],
    ],
)
def test_any_cursor_is_kept(tmp_path: Path, cursors: list[Any]) -> None:
    journal = a_journal(tmp_path, 2)
    states = [ReadingState(cursor, n + 1) for n, cursor in enumerate(cursors)]
    expected = [JournalEntry(*pair, rows=1) for pair in pairwise(states)]
    for entry in expected:
        journal.add(entry)
    journal.close()
    assert list(a_journal(tmp_path, 2).since(0)) == expected


def test_half_an_entry_counts_as_not_written(tmp_path: Path) -> None:
    filled(tmp_path, 3, 2000).close()
    path = tmp_path / "s.journal.00000001"
    path.write_bytes(path.read_bytes()[:-9])
    again = a_journal(tmp_path)
    assert list(again.since(0)) == entries(2)
    again.add(entries(3)[2])
    again.close()
    assert list(a_journal(tmp_path).since(0)) == entries(3)


def test_damage_is_not_taken_for_the_end(tmp_path: Path) -> None:
    filled(tmp_path, 5, 2).close()
    one, two = tmp_path / "s.journal.00000001", tmp_path / "s.journal.00000002"
    whole = one.read_bytes()
    one.write_bytes(whole[:10] + b"#" + whole[11:])
    with pytest.raises(CannotResume, match=r"00000001: the record at byte 0 is damaged"):
        a_journal(tmp_path)
    one.write_bytes(whole)
    two.unlink()
    with pytest.raises(CannotResume, match=r"00000002: a part of the journal is missing"):
        a_journal(tmp_path)


@pytest.mark.parametrize("segment", [1, 2, 3, 2000])
def test_where_a_reading_begins(tmp_path: Path, segment: int) -> None:
    journal = filled(tmp_path, 8, segment)
    for position in range(journal.last + 2):
        expected = [one for one in entries(8) if one.last > position]
        assert list(journal.since(position)) == expected


@pytest.mark.parametrize("segment", [1, 2, 3, 2000])
def test_what_is_released_is_forgotten(tmp_path: Path, segment: int) -> None:
    journal = filled(tmp_path, 9, segment)
    for position in range(journal.last + 1):
        journal.trim(position)
        assert not journal.lacks(position)
        needed = journal.needed(position)
        assert needed.next <= position + 1
        if segment == 1:
            assert needed.next > position - 5
        assert list(journal.since(position)) == [one for one in entries(9) if one.last > position]
    assert journal.lacks(0) == (segment < 2000)
    journal.close()
    assert list(a_journal(tmp_path, segment).since(journal.last)) == []
    assert len(list(tmp_path.iterdir())) <= max(1, 9 - segment)
    Journal.forget(RealFolder(tmp_path), "s.journal")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("segment", [1, 2, 3, 2000])
def test_what_was_promised_is_kept(tmp_path: Path, segment: int) -> None:
    journal = a_journal(tmp_path, segment)
    journal.begin(state(0, 1))
    journal.promise(70, state(0, 1))
    for entry in entries(3):
        journal.add(entry)
    for floor in (80, 90):
        journal.promise(floor, state(3, journal.last + 1))
    journal.close()
    again = a_journal(tmp_path, segment)
    assert again.promised == 90
    assert list(again.since(0)) == entries(3)


def test_an_hour_of_a_hundred_partitions_is_small(tmp_path: Path) -> None:
    """A hundred tables a second, none released, are less than 50 MB: a fiftieth is written here."""
    count, chance = 7_200, np.random.default_rng(0)
    journal = a_journal(tmp_path)
    before = ReadingState({str(n): 10**9 for n in range(100)}, 1)
    for n in range(count):
        steps = chance.poisson(10, 100).tolist()
        pairs = zip(before.cursor.items(), steps, strict=True)
        offsets = {key: at + step for (key, at), step in pairs}
        now_us = 10**15 + 10_000 * n
        after = ReadingState(offsets, before.next + sum(steps), now_us, 0, now_us)
        journal.add(JournalEntry(before, after, sum(steps), int(chance.integers(1 << 32))))
        before = after
    in_memory = sum(map(len, journal._active))
    journal.close()
    assert in_memory < 1_000_000
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 1_000_000
    assert [one.after for one in a_journal(tmp_path).since(before.next - 2)] == [before]


# -- reading again -------------------------------------------------------------------------------


class Log(Source):
    """Event times in a list, in tables cut at random. A cursor is an index."""

    replayable = True
    finite = True

    def __init__(self, times: Sequence[int], upto: int, seed: int) -> None:
        self._times = times
        self._upto = upto
        self._rng = random.Random(seed)

    def start_cursor(self) -> int:
        return 0

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
        name="S",
        columns=SPEC_COLUMNS,
        site="a",
        source=Call(name="log"),
        timestamp="ts",
        lateness_us=lateness_us,
    )

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


class Once(Source):
    """Gives so many tuples and cannot be asked again, as a function of a user's."""

    finite = True

    def __init__(self, times: Sequence[int], fails: bool = False) -> None:
        self.times, self.fails, self.asked = times, fails, 0

    def read(self) -> Iterator[pa.Table]:
        self.asked += 1
        yield source_table(self.times)
        if self.fails:
            raise ValueError("the line is dead")


def test_what_cannot_be_read_again_cannot_go_on(tmp_path: Path) -> None:
    ingest = reading(Once([]), an_outlet("S"), a_journal(tmp_path))
    ingest.resume(0)
    with pytest.raises(CannotResume, match="stream S cannot be resumed: its source cannot be"):
        ingest.resume(7)
    ingest.close()


@pytest.mark.parametrize("needed", [3, FOREVER])
def test_but_one_that_has_ended_has(tmp_path: Path, needed: int) -> None:
    """Its readers have had all of it, and hear once more that this is all."""
    first = an_outlet("S")
    first.attach("c")
    run(reading(Once([1, 2, 3]), first, a_journal(tmp_path)))
    outlet, source = an_outlet("S"), Once([1, 2, 3])
    again = reading(source, outlet, a_journal(tmp_path))
    again.resume(needed)
    outlet.attach("c", after=3)
    run(again)
    assert (again.state, outlet.ended, outlet.last, source.asked) == ("ended", True, 3, 0)


@pytest.mark.parametrize(("fails", "needed"), [(True, 3), (False, 2)])
def test_unless_it_failed_or_somebody_lacks_a_tuple(
    tmp_path: Path, fails: bool, needed: int
) -> None:
    first = an_outlet("S")
    first.attach("c")
    ingest = reading(Once([1, 2, 3], fails), first, a_journal(tmp_path))
    ingest.start()
    ingest._thread.join(10)
    ingest.close()
    again = reading(Once([]), an_outlet("S"), a_journal(tmp_path))
    with pytest.raises(CannotResume, match="stream S cannot be resumed: its source cannot be"):
        again.resume(needed)
    again.close()
