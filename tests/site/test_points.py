"""Restart points survive the process."""

from __future__ import annotations

from pathlib import Path

from anabranch.site.points import PointsFile
from anabranch.stream.restart import RestartPoint


class Standing:
    def __init__(self, point: RestartPoint) -> None:
        self.point = point

    def restart_point(self) -> RestartPoint:
        return self.point


def test_they_are_there_again(tmp_path: Path) -> None:
    points = {"a": RestartPoint((3, 4), 2), "b": RestartPoint((2,), 9, instant=-5)}
    file = PointsFile(tmp_path / "points.json")
    assert file.load() == {}
    file.save((name, Standing(point)) for name, point in points.items())
    assert PointsFile(tmp_path / "points.json").load() == points
    file.save([("a", Standing(points["a"]))])
    assert PointsFile(tmp_path / "points.json").load() == {"a": points["a"]}


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    file = PointsFile(tmp_path / "points.json")
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    (tmp_path / "points.json").unlink()
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    assert not (tmp_path / "points.json").exists()


def test_without_a_folder_nothing_is_kept() -> None:
    file = PointsFile(None)
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    assert file.load() == {}
