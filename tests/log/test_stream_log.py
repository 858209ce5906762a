"""A stream's log, in a real folder, cut and damaged as disks and kills do."""

from __future__ import annotations

import threading
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.disk.real import RealFolder
from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume, StorageError
from anabranch.log import segment
from anabranch.log.segment import Entry, from_bytes, to_bytes
from anabranch.log.stream_log import StreamLog, remove_log
from tests.disk.failing_folder import Failed, FailingFolder
from tests.disk.memory import Disk, MemoryFolder

entries_of = st.lists(st.integers(0, 4), max_size=12)


def filled(log: StreamLog, rows: list[int]) -> list[Entry]:
    made: list[Entry] = []
    for many in rows:
        entry = Entry(log.last + 1, many, 10 * log.last, b"x" * 20, {"n": many})
        log.append(entry)
        made.append(entry)
    return made


@given(
    st.builds(
        Entry,
        st.integers(1, 2**60),
        st.integers(0, 2**40),
        st.integers(-(2**62), 2**62),
        st.binary(),
        st.dictionaries(st.text(), st.integers()),
        st.integers(-(2**62), 2**62),
    )
)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert from_bytes(to_bytes(entry)) == entry


@settings(deadline=None, max_examples=20)
@given(entries_of, st.data())
def test_what_was_appended_is_read_from_anywhere_also_by_the_next_process(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], data: st.DataObject
) -> None:
    folder = RealFolder(tmp_path_factory.mktemp("log"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "MARK_BYTES", 150)
        log = StreamLog(folder, "S", segment_bytes=600)
        made = filled(log, rows)
        for one in (log, StreamLog(folder, "S")):
            assert (one.begin, one.last) == (0, sum(rows))
            after = data.draw(st.integers(0, sum(rows)))
            read = [entry for entry in one.read(after) if entry.rows]
            assert read == [entry for entry in made if entry.rows and entry.last > after]
        log.close()


def test_whole_segments_go_once_nobody_needs_them(
    tmp_path: Path,
) -> None:
    log = StreamLog(RealFolder(tmp_path), "S", notes=lambda: {"all": True}, segment_bytes=100)
    filled(log, [2] * 10)
    log.release(11)
    assert 0 < log.begin <= 11
    with pytest.raises(CannotResume, match=r"positions \d+ to 20, so .* after 3"):
        list(log.read(3))
    assert [one.last for one in log.read(11) if one.rows][-1] == 20
    log.release(20)
    assert len(list(tmp_path.iterdir())) == 1
    learned: list[Entry] = []
    again = StreamLog(RealFolder(tmp_path), "S", learned.append)
    assert (again.begin, again.last) == (log.begin, 20)
    assert learned[0].notes["all"]
    remove_log(RealFolder(tmp_path), "S")
    assert not list(tmp_path.iterdir())


def test_a_gap_between_segments_is_refused_with_both_numbers(
    tmp_path: Path,
) -> None:
    log = StreamLog(RealFolder(tmp_path), "S", segment_bytes=100)
    filled(log, [2] * 10)
    log.close()
    sorted(tmp_path.iterdir())[2].unlink()
    with pytest.raises(CannotResume, match="positions 5 to 6 are missing before it"):
        StreamLog(RealFolder(tmp_path), "S")


def test_a_segment_that_became_shorter_is_refused(
    tmp_path: Path,
) -> None:
    log = StreamLog(RealFolder(tmp_path), "S", segment_bytes=200)
    filled(log, [1] * 10)
    for file in sorted(tmp_path.iterdir())[1::-1]:
        file.write_bytes(file.read_bytes()[:-5])
        with pytest.raises(CannotResume, match=r"at byte \d+ is damaged or cut off"):
            list(log.read(0))
        with pytest.raises(CannotResume, match=rf"{file.name}: it ends at byte \d+ of \d+"):
            StreamLog(RealFolder(tmp_path), "S")


def test_an_entry_that_is_missing_in_the_middle_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    log = StreamLog(RealFolder(tmp_path), "S")
    filled(log, [2, 2, 2])
    (file,) = tmp_path.iterdir()
    found = read_records(file.read_bytes(), "")
    whole = list(map(record, found.payloads))
    for left, complaint in (([0, 1, 3], "position 5 comes after 2"), ([0, 1, 2], "ends with")):
        file.write_bytes(b"".join(whole[n] for n in left))
        with pytest.raises(CannotResume, match=f"{complaint}|damaged or cut off"):
            list(log.read(0))


def test_a_log_that_begins_anew_forgets_what_was(tmp_path: Path) -> None:
    log = StreamLog(RealFolder(tmp_path), "S")
    filled(log, [3, 3])
    log.begin_after(40)
    filled(log, [2])
    again = StreamLog(RealFolder(tmp_path), "S")
    assert (again.begin, again.last) == (40, 42)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), min_size=1), st.integers(-1, 31))
def test_what_has_an_event_time_is_found_by_it(entries: list[tuple[int, int]], time: int) -> None:
    """Entries of so many rows and their greatest event time: none with a later one lies before."""
    disk = Disk()
    log = StreamLog(MemoryFolder(disk), "S", segment_bytes=200)
    made = [Entry(1, 0, 0)]
    for rows, newest in entries:
        made.append(Entry(made[-1].last + 1, rows, 0, newest=newest))
        log.append(made[-1])
    wanted = next((one.first - 1 for one in made[1:] if one.newest >= time), log.last)
    for one in (log, StreamLog(MemoryFolder(disk), "S")):
        assert one.since(time) == wanted
        assert one.newest_time == max(entry.newest for entry in made)
    log.release(log.last)
    assert log.since(time) in (wanted, log.begin)
    assert log.since(time) >= wanted


def test_what_is_far_into_a_segment_is_found_without_reading_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "MARK_BYTES", 1_000)
    folder = RealFolder(tmp_path)
    log = StreamLog(folder, "S")
    filled(log, [1] * 500)
    for one, most in ((log, 1_500), (StreamLog(folder, "S"), 1_500)):
        read: list[int] = []
        whole = folder.read_at

        def read_at(name: str, offset: int, size: int) -> bytes:
            read.append(offset)  # noqa: B023
            return whole(name, offset, size)  # noqa: B023

        monkeypatch.setattr(folder, "read_at", read_at)
        assert next(one.read(400)).first == 401
        size = (tmp_path / folder.names()[0]).stat().st_size
        assert abs(read[0] - size * 4 / 5) < most
        monkeypatch.undo()
        monkeypatch.setattr(segment, "MARK_BYTES", 1_000)


def test_what_is_too_large_for_one_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "PIECE_BYTES", 50)
    log = StreamLog(RealFolder(tmp_path), "S")
    bodies = [b"x" * n for n in (0, 10, 300, 20, 1_000, 30)]
    for n, body in enumerate(bodies, 1):
        log.append(Entry(n, 1, 0, body))
    assert [entry.body for entry in log.read(0)] == bodies


def test_one_reads_while_another_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "MARK_BYTES", 300)
    log = StreamLog(RealFolder(tmp_path), "S", segment_bytes=3_000)
    failed: list[Exception] = []
    done = threading.Event()

    def read() -> None:
        after = 0
        try:
            while after < 2_000:
                for entry in log.read(after):
                    assert entry.first == after + 1
                    after = entry.last
        except Exception as error:
            failed.append(error)
        finally:
            done.set()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for one in readers:
        one.start()
    for n in range(1, 2_001):
        log.append(Entry(n, 1, 0, b"x" * (n % 50)))
    for one in readers:
        one.join(60)
    assert done.is_set()
    assert not failed


# -- disks that fail, machines that stop ---------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 40)), max_size=25),
    st.integers(0, 60),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_after_any_end_the_log_is_a_beginning_that_has_all_that_was_promised(
    steps: list[tuple[int, bool, int]], dies_at: int, seed: int, power: bool
) -> None:
    """Appends, with a sync or without, and releases of what lies so far behind; the process, or
    with `power` its machine, ends in the middle of any operation."""
    disk = Disk(dies_at, seed)
    given_rows: list[int] = []
    """What each append was to add, done or not."""
    promised, released = 0, 0
    try:
        log = StreamLog(MemoryFolder(disk), "S", segment_bytes=300)
        for rows, sync, behind in steps:
            given_rows.append(rows)
            log.append(Entry(log.last + 1, rows, log.last, b"z" * 30), sync=sync)
            promised = log.last if sync or not power else promised
            released = max(released, min(promised, log.last - behind))
            log.release(released)
    except StorageError:
        pass
    disk.revive(power=power)
    again = StreamLog(MemoryFolder(disk), "S")
    assert again.last >= promised
    assert again.begin <= released
    whole = [0, *accumulate(given_rows)]
    assert again.last in whole
    read = [entry for entry in again.read(again.begin) if entry.rows]
    assert [n for one in read for n in range(one.first, one.last + 1)] == [
        *range(again.begin + 1, again.last + 1)
    ]
    assert all(entry.body == b"z" * 30 for entry in read)
    again.append(Entry(again.last + 1, 5, 0), sync=True)
    assert [entry.last for entry in again.read(again.last - 5)] == [again.last]


class BadSync(RealFolder):
    """Its files' syncs fail as long as `bad`."""

    bad = False

    def append_to(self, name: str, size: int) -> Any:
        file = super().append_to(name, size)
        whole = file.sync

        def sync() -> None:
            if self.bad:
                raise StorageError("Input/output error")
            whole()

        file.sync = sync  # type: ignore[method-assign]
        return file


def test_what_could_not_be_synced_is_not_there_and_the_next_is_on_the_disk(tmp_path: Path) -> None:
    folder = BadSync(tmp_path)
    log = StreamLog(folder, "S")
    log.append(Entry(1, 2, 0, b"one"), sync=True)
    folder.bad = True
    with pytest.raises(StorageError):
        log.append(Entry(3, 2, 0, b"lost"), sync=True)
    assert log.last == 2
    with pytest.raises(StorageError):
        log.append(Entry(3, 2, 0, b"lost again"), sync=True)
    folder.bad = False
    log.append(Entry(3, 1, 0, b"two"), sync=True)
    for one in (log, StreamLog(RealFolder(tmp_path), "S")):
        assert [bytes(entry.body) for entry in one.read(0)] == [b"one", b"two"]
        assert one.last == 3


def test_one_that_is_not_to_last_is_never_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = BadSync(tmp_path)
    folder.bad = True
    monkeypatch.setattr(folder, "replace", None)
    log = StreamLog(folder, "S", lasting=False, segment_bytes=300)
    made = filled(log, [2] * 20)
    assert list(log.read(0)) == made
    log.sync()
    log.remove()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("torn", [0, 1, 7, 1_000])
def test_killed_between_any_two_steps_it_has_all_that_it_said_it_had(
    tmp_path: Path, torn: int
) -> None:
    """Each call of the disk in turn is the last, and writes only the first `torn` bytes."""
    for step in range(200):
        place = tmp_path / str(step)
        folder = FailingFolder(RealFolder(place), step, torn)
        said, done = 0, False
        try:
            log = StreamLog(folder, "S", segment_bytes=150)
            for many in (1, 2, 0, 3, 1, 2, 1):
                log.append(Entry(log.last + 1, many, log.last, b"y" * 30))
                said = log.last
                log.release(log.last - 3)
            log.begin_after(50)
            said = 50
            log.append(Entry(51, 4, 51))
            said, done = 54, True
        except Failed:
            pass
        again = StreamLog(RealFolder(place), "S")
        assert again.last >= said
        held = [n for one in again.read(again.begin) for n in range(one.first, one.last + 1)]
        assert held == list(range(again.begin + 1, again.last + 1))
        if done:
            return
    pytest.fail("it never came to its end")
