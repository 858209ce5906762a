"""A stream's log, in a real folder, cut and damaged as disks and kills do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.disk.real import RealFolder
from anabranch.errors import CannotResume
from anabranch.log import stream_log
from anabranch.log.entry import Entry, from_bytes, to_bytes
from anabranch.log.stream_log import StreamLog, remove_log
from tests.disk.failing_folder import Failed, FailingFolder

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
        Entry, st.integers(1, 2**60), st.integers(0, 2**40), st.integers(-(2**62), 2**62),
        st.binary(), st.dictionaries(st.text(), st.integers()),
    )
)  # fmt: skip
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert from_bytes(to_bytes(entry)) == entry


@settings(deadline=None, max_examples=20)
@given(entries_of, st.data())
def test_what_was_appended_is_read_from_anywhere_also_by_the_next_process(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], data: st.DataObject
) -> None:
    folder = RealFolder(tmp_path_factory.mktemp("log"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_log, "SEGMENT_BYTES", 200)
        log = StreamLog(folder, "S")
        made = filled(log, rows)
        for one in (log, StreamLog(folder, "S")):
            assert (one.begin, one.last) == (0, sum(rows))
            after = data.draw(st.integers(0, sum(rows)))
            read = [entry for entry in one.read(after) if entry.rows]
            assert read == [entry for entry in made if entry.rows and entry.last > after]
        log.close()


def test_whole_segments_go_once_nobody_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 100)
    log = StreamLog(RealFolder(tmp_path), "S", notes=lambda: {"all": True})
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
    assert learned[0].notes == {"all": True}
    remove_log(RealFolder(tmp_path), "S")
    assert not list(tmp_path.iterdir())


def test_a_gap_between_segments_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 100)
    log = StreamLog(RealFolder(tmp_path), "S")
    filled(log, [2] * 10)
    log.close()
    sorted(tmp_path.iterdir())[2].unlink()
    with pytest.raises(CannotResume, match=r"has positions up to \d+ and again from \d+ on"):
        StreamLog(RealFolder(tmp_path), "S")


def test_a_segment_that_became_shorter_is_refused_when_it_is_read(tmp_path: Path) -> None:
    log = StreamLog(RealFolder(tmp_path), "S")
    filled(log, [1, 1])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CannotResume, match="ends at byte"):
        list(log.read(0))


def test_a_log_that_begins_anew_forgets_what_was(tmp_path: Path) -> None:
    log = StreamLog(RealFolder(tmp_path), "S")
    filled(log, [3, 3])
    log.begin_after(40)
    filled(log, [2])
    again = StreamLog(RealFolder(tmp_path), "S")
    assert (again.begin, again.last) == (40, 42)


@pytest.mark.parametrize("torn", [0, 1, 7, 1_000])
def test_killed_between_any_two_steps_it_has_all_that_it_said_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: int
) -> None:
    """Each call of the disk in turn is the last, and writes only the first `torn` bytes."""
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 150)
    for step in range(200):
        place = tmp_path / str(step)
        folder = FailingFolder(RealFolder(place), step, torn)
        said, done = 0, False
        try:
            log = StreamLog(folder, "S")
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
