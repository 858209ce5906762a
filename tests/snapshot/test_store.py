"""Snapshots in a folder are whole or not there, and nothing is left of those nobody needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.disk.real import RealFolder
from anabranch.errors import CannotResume, StorageError
from anabranch.snapshot.state import KeptPieces, Piece, State
from anabranch.snapshot.store import SnapshotStore, remove_snapshots
from anabranch.stream.restart import SnapshotName


class Failing:
    """A folder in which the operation with a given number fails, and all after it."""

    def __init__(self, folder: RealFolder, after: int) -> None:
        self._folder = folder
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder, name)

    def _one(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise StorageError("No space left on device")

    def append_to(self, name: str, size: int) -> Any:
        self._one()
        file = self._folder.append_to(name, size)
        whole = file.append

        def append(data: bytes) -> None:
            try:
                self._one()
            except StorageError:
                whole(data[: len(data) // 2])
                raise
            whole(data)

        file.append = append  # type: ignore[method-assign]
        return file

    def replace(self, name: str, data: bytes) -> None:
        self._one()
        self._folder.replace(name, data)

    def remove(self, name: str) -> None:
        self._one()
        self._folder.remove(name)


def name(number: int, site: str = "room.1") -> SnapshotName:
    return SnapshotName(0, number, site)


def piece(text: str) -> Piece:
    data = text.encode()
    return Piece(object(), lambda: data)


def texts(kept: KeptPieces | None) -> list[str]:
    assert kept
    return [one.decode() for one in kept.pieces]


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    state = State({"next": 7}, [piece("a"), piece(""), piece("c")])
    SnapshotStore(RealFolder(tmp_path), "q#1.x").keep(name(3), state)
    again = SnapshotStore(RealFolder(tmp_path), "q#1.x")
    assert again.names() == [name(3)]
    kept = again.load(name(3))
    assert texts(kept) == ["a", "", "c"]
    assert kept
    assert kept.notes == {"next": 7}
    assert again.piece(name(3), 2) == b"c"
    assert again.load(name(4)) is None
    assert SnapshotStore(RealFolder(tmp_path), "q").names() == []


def test_a_piece_is_written_once_and_goes_with_the_last_manifest(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path)
    store = SnapshotStore(folder, "q")
    long = piece("long" * 1000)
    for number in range(1, 6):
        store.keep(name(number), State({}, [long, piece(f"new {number}")]))
        store.keep_only({name(number)})
    assert sum(map(folder.size, folder.names())) < 2 * 4000
    assert texts(SnapshotStore(folder, "q").load(name(5))) == ["long" * 1000, "new 5"]
    store.keep(name(6), State({}, [piece("else")]))
    store.keep_only({name(6)})
    assert store.piece(name(5), 0) is None, "who was just told of it learns that it has gone"
    assert len(folder.names()) == 2


def test_a_file_that_is_mostly_waste_is_not_referred_to(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path)
    store = SnapshotStore(folder, "q")
    small = piece("small")
    store.keep(name(1), State({}, [small, piece("x" * 1000)]))
    store.keep(name(2), State({}, [small]))
    store.keep_only({name(2)})
    assert sum(map(folder.size, folder.names())) < 300
    assert texts(store.load(name(2))) == ["small"]


def test_bytes_are_asked_for_once_and_let_go_of_when_they_are_kept(tmp_path: Path) -> None:
    content = [b"content"]
    once = Piece(object(), content.pop, lambda: content.append(b"may go"))
    store = SnapshotStore(RealFolder(tmp_path), "q")
    store.keep(name(1), State({}, [once, piece("x" * 1000)]))
    assert content == [b"may go"]
    # Its file is mostly waste now, so it is copied.
    store.keep(name(2), State({}, [once]))
    store.keep_only({name(2)})
    assert texts(store.load(name(2))) == ["content"]


@pytest.mark.parametrize("after", range(12))
def test_the_snapshot_before_stays_whole_wherever_keeping_fails(tmp_path: Path, after: int) -> None:
    folder = RealFolder(tmp_path)
    shared = piece("shared" * 20)
    first = State({"n": 1}, [shared, piece("one")])
    store = SnapshotStore(folder, "q")
    store.keep(name(1), first)
    store._folder = Failing(folder, after)  # type: ignore[assignment]
    try:
        store.keep(name(2), State({"n": 2}, [shared, piece("two"), piece("three")]))
        store.keep_only({name(2)})
        done = True
    except StorageError:
        done = False
    again = SnapshotStore(folder, "q")
    there = again.names()
    assert there, "one of them at least"
    for one in there:
        expected = ["one"] if one == name(1) else ["two", "three"]
        assert texts(again.load(one)) == ["shared" * 20, *expected]
    assert not done or there == [name(2)]
    # What was left is no obstacle to the next one.
    again.keep(name(3), State({}, [piece("later")]))
    again.keep_only({name(3)})
    assert len(folder.names()) == 2


@pytest.mark.parametrize("kind", ["manifest", "pieces"])
def test_damage_is_refused_with_its_place(tmp_path: Path, kind: str) -> None:
    SnapshotStore(RealFolder(tmp_path), "q").keep(name(1), State({}, [piece("content")]))
    (path,) = tmp_path.glob(f"*.{kind}")
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CannotResume, match=path.name):
        SnapshotStore(RealFolder(tmp_path), "q").load(name(1))


def test_a_copy_from_elsewhere_has_its_own_name(tmp_path: Path) -> None:
    here, there = RealFolder(tmp_path / "a"), RealFolder(tmp_path / "b")
    SnapshotStore(here, "q").keep(name(1, "a"), State({}, [piece("of a")]))
    kept = SnapshotStore(here, "q").load(name(1, "a"))
    assert kept
    store = SnapshotStore(there, "q")
    store.keep(name(1, "b"), State({}, [piece("of b")]))
    store.keep(name(1, "a"), kept.as_state())
    assert texts(store.load(name(1, "a"))) == ["of a"]
    assert texts(store.load(name(1, "b"))) == ["of b"]


def test_what_is_dropped_leaves_nothing_and_takes_no_other_along(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path)
    for task in ("q", "q.1", "q#2"):
        SnapshotStore(folder, task).keep(name(1), State({}, [piece(task)]))
    remove_snapshots(folder, ["q"])
    assert SnapshotStore(folder, "q").names() == []
    assert texts(SnapshotStore(folder, "q.1").load(name(1))) == ["q.1"]
    assert len(folder.names()) == 4
