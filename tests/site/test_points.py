"""Restart points survive the process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from anabranch.disk.real import RealFolder
from anabranch.disk.records import read_records
from anabranch.errors import StorageError
from anabranch.site.tasks.restart_points import PointsFile, PointsKeeper
from anabranch.stream.restart import Points, RestartPoint
from tests.link.support import LOOP


def test_they_are_there_again(tmp_path: Path) -> None:
    b = RestartPoint((2,), 9, instant=-5, incarnation=7)
    points = {"a": RestartPoint((3, 4), 2, readers={"b": b}), "b": b}
    file = PointsFile(RealFolder(tmp_path))
    assert file.all() == {}
    file.save(points)
    assert PointsFile(RealFolder(tmp_path)).all() == points


def test_those_of_tasks_that_run_here_no_more_stay_until_they_are_dropped(tmp_path: Path) -> None:
    """After a failure they may be the only ones."""
    point = RestartPoint((3,), 2)
    PointsFile(RealFolder(tmp_path)).save({"a": point, "b": point})
    again = PointsFile(RealFolder(tmp_path))
    newer = RestartPoint((5,), 4)
    again.save({"a": newer})
    assert again.all() == {"a": newer, "b": point}
    again.forget(["a"])
    assert PointsFile(RealFolder(tmp_path)).all() == {"b": point}


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    file = PointsFile(RealFolder(tmp_path))
    file.save({"a": RestartPoint((1,), 1)})
    (tmp_path / "points").unlink()
    file.save({"a": RestartPoint((1,), 1)})
    assert not (tmp_path / "points").exists()


def test_a_line_that_was_cut_off_was_told_nobody(tmp_path: Path) -> None:
    path = tmp_path / "points"
    file = PointsFile(RealFolder(tmp_path))
    for n in (1, 2, 3):
        file.save({"a": RestartPoint((n,), n)})
    file.close()
    path.write_text(path.read_text()[:-5])
    assert PointsFile(RealFolder(tmp_path)).all() == {"a": RestartPoint((2,), 2)}


def test_what_is_damaged_takes_nothing_but_itself(tmp_path: Path) -> None:
    """The site starts all the same, with what is left, and the damaged file stays beside it."""
    path = tmp_path / "points"
    file = PointsFile(RealFolder(tmp_path))
    file.save({"a": RestartPoint((1,), 1), "b": RestartPoint((1,), 1)})
    file.save({"a": RestartPoint((2,), 2)})
    file.save({"b": RestartPoint((3,), 3)})
    file.close()
    data = path.read_bytes()
    ends = read_records(data, "points").ends
    starts = [0, *ends[:-1]]
    for start, end, left in zip(
        starts,
        ends,
        (
            {"a": RestartPoint((2,), 2), "b": RestartPoint((3,), 3)},
            {"a": RestartPoint((1,), 1), "b": RestartPoint((3,), 3)},
            {"a": RestartPoint((2,), 2), "b": RestartPoint((1,), 1)},
        ),
        strict=True,
    ):
        for at in (start, start + 9, end - 2):
            damaged = data[:at] + b"#" + data[at + 1 :]
            path.write_bytes(damaged)
            again = PointsFile(RealFolder(tmp_path))
            assert again.all() == left
            if end == ends[-1]:  # as if it had been cut off
                assert again.damage is None
                continue
            assert again.damage
            assert f"the record at byte {start} is damaged" in again.damage.line()
            again.save({"a": RestartPoint((9,), 9)})
            copies = [one.read_bytes() for one in tmp_path.glob("points.damaged-*")]
            assert damaged in copies
            again.close()
    path.write_bytes(b"garbage")
    nothing = PointsFile(RealFolder(tmp_path))
    assert nothing.all() == {}
    assert nothing.damage


def test_only_what_is_new_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "points"
    file = PointsFile(RealFolder(tmp_path))
    points = {f"t{n}": RestartPoint((n,), n) for n in range(50)}
    file.save(points)
    whole = path.stat().st_size
    points["t7"] = RestartPoint((90,), 90)
    file.save(points)
    assert path.stat().st_size < whole * 1.1
    monkeypatch.setattr("anabranch.site.tasks.restart_points.LONG", 10)
    points["t7"] = RestartPoint((91,), 91)
    file.save(points)
    assert len(read_records(path.read_bytes(), "").payloads) == 1
    assert PointsFile(RealFolder(tmp_path)).all()["t7"] == RestartPoint((91,), 91)


def test_a_point_told_late_does_not_take_a_newer_one_back(tmp_path: Path) -> None:
    file = PointsFile(RealFolder(tmp_path))
    file.save({"a": RestartPoint((9,), 9)})
    file.save({"a": RestartPoint((5,), 5)})
    assert PointsFile(RealFolder(tmp_path)).all() == {"a": RestartPoint((9,), 9)}


def test_those_who_keep_at_once_share_writes(tmp_path: Path) -> None:
    """And each goes on only when its own points are on the disk."""

    class Slow(PointsFile):
        writes = 0

        def save(self, points: Points) -> None:
            self.writes += 1
            time.sleep(0.05)
            super().save(points)

    file = Slow(RealFolder(tmp_path))
    keeper = PointsKeeper(LOOP, file)

    async def keep(number: int) -> bool:
        point = RestartPoint((number,), number)
        await keeper.keep({f"t{number}": point})
        return PointsFile(RealFolder(tmp_path)).all()[f"t{number}"] == point

    async def all_at_once() -> list[bool]:
        spawned = [LOOP.spawn(keep(number)) for number in range(20)]
        return [await one.join() for one in spawned]

    assert all(LOOP.run(all_at_once()))
    assert file.writes == 2


def test_points_that_the_disk_did_not_take_are_not_kept(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path / "gone")
    file = PointsFile(folder)
    folder.path.rmdir()
    with pytest.raises(StorageError, match="No such file"):
        file.save({"a": RestartPoint((1,), 1)})
    assert file.news({"a": RestartPoint((1,), 1)})
    assert not file.all()
