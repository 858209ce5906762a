"""A source whose site is killed, loses its power, its disk or its folder goes on exactly, or says
that it cannot."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.connectors import Source
from anabranch.disk.real import RealFolder
from anabranch.errors import CannotResume, SiteError, SourceAway
from anabranch.link.inlet import Budget
from anabranch.link.outlet import LiveOutlet
from anabranch.link.store import DiskBudget, KeptLog, Shelves
from anabranch.link.wire import ArrowBatches
from anabranch.log.spills import Spills
from anabranch.log.stream_log import StreamLog
from anabranch.plan.keep import Keep
from anabranch.runtime.pipe import Pipe
from anabranch.site.sources.entries import JournalEntry, ReadingState
from anabranch.site.sources.ingest import Ingest
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.reading_again import checksum
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.restart import FOREVER
from tests.disk.memory import Disk, MemoryFolder
from tests.link.support import LOOP, SCHEMA, eventually, follow, values
from tests.site.fakes import an_ingest, source_table

TIMES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 10, 12, 11, 13]


class Log(Source):
    """A source of TIMES; `cuts` says how many come together. A cursor is an index."""

    replayable = True
    finite = True
    historic = True

    def __init__(self, cuts: str = "3", times: list[int] = TIMES) -> None:
        self.times = times
        self._cuts = itertools.cycle(map(int, cuts))

    def start_cursor(self) -> Any:
        return {"at": 0}

    def read_from(self, cursor: Any) -> Iterator[tuple[pa.Table, Any]]:
        while cursor["at"] < len(self.times):
            end = {"at": min(len(self.times), cursor["at"] + next(self._cuts))}
            yield self.reread(cursor, end), end
            cursor = end

    def reread(self, begin: Any, end: Any) -> pa.Table:
        return source_table(self.times[begin["at"] : end["at"]], begin["at"])


class Bulk(Log):
    bulk = 3

    def reread_many(self, begin: Any, ends: Iterator[Any]) -> Iterator[tuple[pa.Table, int]]:
        while group := list(itertools.islice(ends, self.bulk)):
            yield self.reread(begin, group[-1]), len(group)
            begin = group[-1]


def reading(
    log: Any, journal: Journal | None, outlet: LiveOutlet | None = None, **more: Any
) -> Ingest:
    made = an_ingest([], outlet=outlet, lateness_us=2)
    return Ingest(made.stream, made.outlet, lambda stopped, skipped: log, 0.02, journal, **more)


def run(ingest: Ingest, until: Any = lambda: False) -> None:
    ingest.start()
    eventually(lambda: ingest.state != "running" or until(), within_s=60)
    ingest.close()
    assert ingest.error is None


def expected() -> list[int]:
    ingest = reading(Log(), None)
    run(ingest)
    return values(follow(ingest.outlet, "c", 0))


def given(ingest: Ingest) -> list[int]:
    outlet = ingest.outlet._outlet
    return [n for batch in outlet._kept for n in batch.data.column("n").to_pylist()]


# -- killed at every write -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Log, Bulk])
@pytest.mark.parametrize("power", [False, True])
def test_killed_at_every_write_it_gives_the_same_at_the_same_positions(
    kind: type[Log], power: bool
) -> None:
    """Twice, so that what is read again is killed, too. Consumers need anything from the first
    tuple to the last on."""
    whole = expected()
    for dies_at, segment in itertools.product(range(1, 24), (1, 3, 100)):
        disk = Disk(dies_at, seed=dies_at)
        had: list[int] = []
        for again in (dies_at % 7 + 1, 1 << 30):
            journal = Journal(MemoryFolder(disk), "j", segment)
            start = min(len(had), dies_at % 5)
            ingest = reading(kind("12"), journal, synced=power)
            ingest.outlet.attach("c", after=start)
            ingest.resume(start)
            run(ingest, until=lambda disk=disk: disk.dead)
            now = given(ingest)
            assert now == whole[start : start + len(now)], (dies_at, segment)
            had = max(had, whole[:start] + now, key=len)
            disk.revive(power=power, dies_at=again)
        journal = Journal(MemoryFolder(disk), "j", segment)
        ingest = reading(kind("3"), journal, synced=power)
        ingest.resume(len(had))
        run(ingest)
        assert given(ingest) == whole[len(had) :], (dies_at, segment)


def test_without_syncs_a_loss_of_power_is_refused_and_not_gone_over() -> None:
    whole, refused = expected(), 0
    for seed in range(40):
        disk = Disk(seed=seed)
        first = reading(Log("12"), Journal(MemoryFolder(disk), "j", 4))
        run(first)
        disk.revive(power=True)
        try:
            second = reading(Log("21"), Journal(MemoryFolder(disk), "j", 4))
            second.resume(5 + seed % 10)
        except CannotResume:
            refused += 1
            continue
        run(second)
        assert given(second) == whole[5 + seed % 10 :]
    assert 5 < refused < 40


def test_a_full_disk_is_waited_for_and_said(tmp_path: Path) -> None:
    disk = Disk(dies_at=6)
    ingest = reading(Log(), Journal(MemoryFolder(disk), "j"))
    ingest.start()
    eventually(lambda: bool(ingest.report().problem))
    assert ingest.report().problem == "the process has ended"
    before = given(ingest)
    disk.dies_at = 1 << 30  # there is room again
    disk.operations = 0
    eventually(lambda: ingest.state == "ended")
    assert len(before) < len(given(ingest))
    assert given(ingest) == expected()
    assert ingest.report().problem == ""
    ingest.close()


# -- what does not fit ---------------------------------------------------------------------------


def test_a_journal_that_does_not_reach_the_restart_point_is_refused(tmp_path: Path) -> None:
    ingest = reading(Log(), Journal(RealFolder(tmp_path / "other"), "j"))
    with pytest.raises(CannotResume) as caught:
        ingest.resume(7)
    assert str(caught.value) == (
        f"{tmp_path}/other/j: stream S cannot be resumed behind 7: its journal knows of 0 tuples,"
        " so others would come under numbers that were given. Start the site with the state folder"
        " that it had, or drop the stream and create it again: that begins anew."
    )
    ingest.close()


def test_a_reader_that_has_had_more_than_the_journal_knows_is_told(tmp_path: Path) -> None:
    """Whether it comes back before the source goes on or later; another is not held up by it."""
    disk = Disk()
    run(reading(Log("4"), Journal(MemoryFolder(disk), "j")))
    journal = disk.files["j.00000001"]
    disk.files["j.00000001"] = journal[: len(journal) * 2 // 3]  # what a loss of power left
    for early in (True, False):
        again = reading(Live(TIMES), Journal(MemoryFolder(disk), "j"))
        again.outlet.attach("ahead", after=4)
        asked = Pipe(LOOP, limit=0)
        if early:
            LOOP.spawn(again.outlet.follow(asked, "ahead", 17))
            eventually(lambda again=again: bool(again.outlet._returned.get("ahead")))
            with pytest.raises(CannotResume, match=r"ahead has had 17 tuples, and the journal kno"):
                again.resume(4)
        else:
            again.resume(4)
            LOOP.spawn(again.outlet.follow(asked, "ahead", 17))
            eventually(lambda again=again: again.outlet.ahead() is not None)
            again.start()
            eventually(lambda again=again: again.state == "failed")
            assert "ahead has had 17 tuples, and the journal knows of" in str(again.error)
            with pytest.raises(SiteError, match="and ahead has had 17"):
                LOOP.run(asked.receive(10))
        again.close()


def test_a_reader_is_ahead_of_a_journal_that_is_gone_too(tmp_path: Path) -> None:
    """It has received tuples and acknowledged none."""
    again = reading(Live(TIMES), Journal(RealFolder(tmp_path), "j"))
    again.outlet.attach("ahead", after=0)
    again.resume(0)
    LOOP.spawn(again.outlet.follow(Pipe(LOOP, limit=0), "ahead", 17))
    eventually(lambda: again.outlet.ahead() == ("ahead", 17, 0))
    again.close()


@pytest.mark.parametrize("kind", [Log, Bulk])
@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ([*TIMES[:4], 4, *TIMES[5:]], r"rows with checksum \w{8} were read, and now \w{8}"),
        (TIMES[:5], r"rows were read, and now \d"),
    ],
)
def test_a_source_that_has_changed_is_refused(
    tmp_path: Path, kind: type[Log], changed: list[int], complaint: str
) -> None:
    run(reading(kind(), Journal(RealFolder(tmp_path), "j")))
    again = reading(kind(times=changed), Journal(RealFolder(tmp_path), "j"))
    again.resume(0)
    again.start()
    eventually(lambda: again.state == "failed")
    again.close()
    assert isinstance(again.error, CannotResume)
    with pytest.raises(CannotResume, match=f"stream S: it cannot be read again: .*{complaint}"):
        raise again.error


def test_nobody_needs_what_was_given(tmp_path: Path) -> None:
    """So none of it has to be there any more."""
    run(reading(Log(), Journal(RealFolder(tmp_path), "j")))
    again = reading(Log(times=[0] * len(TIMES) + [20]), Journal(RealFolder(tmp_path), "j"))
    again.resume(FOREVER)
    run(again)
    assert given(again) == [len(TIMES)]
    assert again.outlet.last == len(expected()) + 1


# -- what passes ---------------------------------------------------------------------------------


def test_a_source_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """Nothing is lost or repeated."""

    class Away(Log):
        attempts = 0

        def read_from(self, cursor: Any) -> Iterator[tuple[pa.Table, Any]]:
            for number, found in enumerate(super().read_from(cursor)):
                if number == 2:
                    self.attempts += 1
                    raise SourceAway("nobody answers", place="localhost:1")
                yield found

    log = Away()
    ingest = reading(log, Journal(RealFolder(tmp_path), "j"))
    run(ingest, until=lambda: log.attempts == 2 and ingest.report().problem)
    assert ingest.report().problem == "localhost:1: nobody answers"
    ingest = reading(Log(), Journal(RealFolder(tmp_path), "j"))
    ingest.resume(3)
    run(ingest)
    assert given(ingest) == expected()[3:]


def test_a_source_that_is_back_and_brings_nothing_is_away_no_more(tmp_path: Path) -> None:
    """Else it would be waited for in vain, and the clock would move no watermark."""

    class Back(Log):
        finite = False
        refused = 0
        stopped = threading.Event()

        def reread(self, begin: Any, end: Any) -> pa.Table:
            if self.refused < 2:
                self.refused += 1
                raise SourceAway("nobody answers", place="localhost:1")
            return super().reread(begin, end)

        def read_from(self, cursor: Any) -> Iterator[tuple[pa.Table, Any]]:
            self.stopped.wait()
            yield from ()

    run(reading(Log(), Journal(RealFolder(tmp_path), "j")))
    log = Back()
    ingest = reading(log, Journal(RealFolder(tmp_path), "j"))
    ingest.resume(3)
    ingest.start()
    eventually(lambda: ingest.report().problem == "localhost:1: nobody answers")
    eventually(lambda: given(ingest) == expected()[3:])
    eventually(lambda: ingest.report().problem == "")
    log.stopped.set()
    ingest.close()


# -- the clock -----------------------------------------------------------------------------------


class Live(Log):
    finite = False
    historic = False

    def __init__(self, times: list[int]) -> None:
        super().__init__("9", times)
        self.stopped = threading.Event()

    def read_from(self, cursor: Any) -> Iterator[tuple[pa.Table, Any]]:
        while not self.stopped.wait(0.01):
            if cursor["at"] < len(self.times):
                end = {"at": len(self.times)}
                yield self.reread(cursor, end), end
                cursor = end


def test_a_watermark_that_the_clock_moved_holds_after_a_restart(tmp_path: Path) -> None:
    start = time.time_ns() // 1000
    live = Live([start - 5_000_000])
    ingest = reading(live, Journal(RealFolder(tmp_path), "j"))
    ingest.outlet.attach("c")
    ingest.start()
    eventually(lambda: ingest.outlet.last == 1)
    ingest.reading.heard -= 4.0  # nothing has come for so long
    eventually(lambda: ingest.outlet.watermark > start - 5_000_000)
    promised = ingest.outlet.watermark
    live.stopped.set()
    ingest.close()

    late = Live([start - 5_000_000, promised - 1, promised + 10_000_000])
    again = reading(late, Journal(RealFolder(tmp_path), "j"))
    again.resume(0)
    again.start()
    eventually(lambda: again.outlet.last + again.late == 3)
    late.stopped.set()
    again.close()
    assert (given(again), again.late) == ([0, 2], 1)
    assert again.outlet.watermark >= promised


def test_a_tuple_that_the_source_knew_of_is_not_late_after_a_restart(tmp_path: Path) -> None:
    """Though promises are kept for a second ahead."""
    start = time.time_ns() // 1_000_000_000 * 1_000_000 - 5_000_000
    live = Live([start])
    live.upcoming = start + 1_300_000
    ingest = reading(live, Journal(RealFolder(tmp_path), "j"))
    ingest.outlet.attach("c")
    ingest.start()
    eventually(lambda: ingest.outlet.last == 1 and not ingest.reading._holding)
    ingest.reading.heard -= 4.0
    eventually(lambda: ingest.outlet.watermark == start + 1_300_000 - 2)
    live.stopped.set()
    ingest.close()

    known = Live([start, start + 1_300_000])
    again = reading(known, Journal(RealFolder(tmp_path), "j"))
    again.resume(0)
    again.start()
    eventually(lambda: again.outlet.last + again.late == 2)
    known.stopped.set()
    again.close()
    assert (given(again), again.late) == ([0, 1], 0)


def test_many_small_tables_are_read_again_at_once(tmp_path: Path) -> None:
    times = list(range(15_000))
    journal = Journal(RealFolder(tmp_path), "j")
    states = [
        ReadingState({"at": n}, n + 1, n - 1 if n else START_WATERMARK) for n in range(15_001)
    ]
    for before, after in itertools.pairwise(states):
        table = Bulk(times=times).reread(before.cursor, after.cursor)
        journal.add(JournalEntry(before, after, 1, checksum(table)))
    journal.close()
    log = Bulk("1", times)
    log.bulk = 1000
    again = reading(log, Journal(RealFolder(tmp_path), "j"))
    again.resume(0)
    begun = time.monotonic()
    again.start()
    eventually(lambda: again.state == "ended", within_s=60)
    took = time.monotonic() - begun
    again.close()
    report = again.report()
    assert (report.replayed, report.to_replay) == (15_000, 15_000)
    assert given(again) == times
    assert took < 10


# -- kept for those who come later ---------------------------------------------------------------


def kept(disk: Disk, *, power: bool) -> LiveOutlet[Any]:
    folder = MemoryFolder(disk)
    log = StreamLog(folder, "S+kept", segment_bytes=800)
    shelves = Shelves(Budget(LOOP, 1 << 20), DiskBudget(1 << 20), Spills(folder).new)
    return LiveOutlet(
        LOOP,
        "S",
        ArrowBatches(SCHEMA),
        limit=1 << 20,
        heartbeat_s=0.02,
        shelves=shelves,
        record=KeptLog(log, Keep(us=1_000), synced=power),
    )


@pytest.mark.parametrize("kind", [Log, Bulk])
@pytest.mark.parametrize("power", [False, True])
def test_killed_at_every_write_what_is_kept_is_whole(
    kind: type[Log], power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes later reads all from the first tuple on, once. The site is killed twice, or
    loses its power, and goes on after what is written down; the journal has forgotten that."""
    # A dead process tries nothing again, so nobody need wait for its next try.
    monkeypatch.setattr(LOOP, "failed", lambda name, error: 0.01)
    whole = expected()
    for dies_at, segment in itertools.product(range(1, 40, 2), (1, 100)):
        disk = Disk(dies_at, seed=dies_at)
        for again in (dies_at % 7 + 1, *[1 << 30] * 3):
            outlet = kept(disk, power=power)
            ingest = reading(
                kind("12"), Journal(MemoryFolder(disk), "j", segment), outlet, synced=power
            )
            ingest.resume(FOREVER)
            had = outlet.last
            run(ingest, until=lambda disk=disk: disk.dead)
            assert given(ingest) == whole[outlet._outlet.in_memory_after : outlet.last]
            # It may also die while the rest is being written down.
            eventually(lambda o=outlet, disk=disk: disk.dead or o.log.last == o.last)
            if not disk.dead:
                assert values(follow(outlet, "late", 0)) == whole, (dies_at, segment, had)
            outlet.close()
            LOOP.run(outlet.rest())
            disk.revive(power=power, dies_at=again)
        assert had == len(whole)
