"""What a site gives for a backup: nothing that is counted on is let go of meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.disk.real import RealFolder
from anabranch.link.messages import HoldState, ReadFile, ReleaseState, StateFiles
from anabranch.runtime.loop import process_loop
from anabranch.site.backup import COLUMN, PIECE_BYTES, StateGiver
from anabranch.site.tasks.restart_points import POINTS, PointsFile, PointsKeeper
from anabranch.stream.restart import RestartPoint

LOOP = process_loop()


@pytest.fixture
def folder(tmp_path: Path) -> RealFolder:
    return RealFolder(tmp_path)


class Giver:
    def __init__(self, folder: RealFolder) -> None:
        self.points = PointsFile(folder)
        self.keeper = PointsKeeper(LOOP, self.points)
        self._giver = StateGiver(LOOP, folder, self.keeper)

    def hold(self, seconds: float = 60.0) -> None:
        LOOP.run(self._giver.hold(HoldState(seconds)))

    def release(self) -> bool:
        return LOOP.run(self._giver.release(ReleaseState()))

    def files(self) -> tuple[str, ...]:
        return self._giver.files(StateFiles())

    def read(self, name: str) -> bytes:
        data = b""
        while piece := self._giver.read(ReadFile(name, len(data)))[0].column(COLUMN)[0].as_py():
            data += piece
        return data


@pytest.fixture
def giver(folder: RealFolder) -> Giver:
    return Giver(folder)


def test_points_stand_still_until_it_is_released(giver: Giver) -> None:
    LOOP.run(giver.keeper.keep({"q": RestartPoint((1,), 1)}))
    giver.hold()
    keeping = LOOP.spawn(giver.keeper.keep({"q": RestartPoint((2,), 2)}))
    assert not LOOP.run(keeping.within(0.3))
    assert giver.points.all() == {"q": RestartPoint((1,), 1)}
    assert giver.release()
    LOOP.run(keeping.join())
    assert giver.points.all() == {"q": RestartPoint((2,), 2)}


def test_a_hold_ends_by_itself_and_says_so(giver: Giver, folder: RealFolder) -> None:
    folder.replace("a", b"1")
    giver.hold(0.2)
    folder.remove("a")
    LOOP.run(giver.keeper.keep({"q": RestartPoint((2,), 2)}))
    assert not giver.release()
    assert folder.names() == [POINTS]


def test_nothing_is_removed_until_it_is_released(giver: Giver, folder: RealFolder) -> None:
    for name in ("a", "b", "c"):
        folder.replace(name, name.encode())
    giver.hold()
    folder.remove("a")
    folder.remove("b")
    folder.remove("c")
    folder.replace("b", b"anew")
    folder.append_to("c", 1).append(b"d")
    assert folder.names() == ["a", "b", "c"]
    giver.release()
    assert folder.names() == ["b", "c"]
    folder.remove("c")
    assert folder.names() == ["b"]


def test_it_gives_what_another_needs_in_the_order_that_is_safe(
    giver: Giver, folder: RealFolder
) -> None:
    LOOP.run(giver.keeper.keep({"q": RestartPoint((1,), 1)}))
    names = ["s.journal.00000001", "s+kept.00000000000000000001.log", "identity", "lock"]
    names += ["s.1.spill.00000000000000000001.log", "log.jsonl", "x.new"]
    for name in names:
        (folder.path / name).write_bytes(b"x")
    (folder.path / "p.pocket").mkdir()
    (folder.path / "p.pocket" / "1").write_bytes(b"x" * (PIECE_BYTES + 1))
    files = giver.files()
    assert files[0] == POINTS
    assert files[-1] == "s.journal.00000001"
    kept = {"p.pocket/1", "s+kept.00000000000000000001.log", "identity"}
    assert set(files[1:-1]) == kept
    assert giver.read("p.pocket/1") == b"x" * (PIECE_BYTES + 1)


@pytest.mark.parametrize("name", ["lock", "../secret", "/etc/hostname", "not there"])
def test_it_gives_nothing_else(giver: Giver, folder: RealFolder, name: str) -> None:
    (folder.path / "lock").write_bytes(b"x")
    (folder.path.parent / "secret").write_bytes(b"x")
    assert giver.read(name) == b""
