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
    b = RestartPoint((2,), 9, instant=-5, birth=7)
    points = {"a": RestartPoint((3, 4), 2, readers={"b": b}), "b": b}
    file = PointsFile(tmp_path / "points.json")
    assert file.all() == {}
    file.save((name, Standing(point)) for name, point in points.items())
    assert PointsFile(tmp_path / "points.json").all() == points


def test_those_of_tasks_that_run_here_no_more_stay_until_they_are_dropped(tmp_path: Path) -> None:
    """After a failure they may be the only ones."""
    point = RestartPoint((3,), 2)
    PointsFile(tmp_path / "points.json").save([("a", Standing(point)), ("b", Standing(point))])
    again = PointsFile(tmp_path / "points.json")
    newer = RestartPoint((5,), 4)
    again.save([("a", Standing(newer))])
    assert again.all() == {"a": newer, "b": point}
    again.forget(["a"])
    assert PointsFile(tmp_path / "points.json").all() == {"b": point}


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    file = PointsFile(tmp_path / "points.json")
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    (tmp_path / "points.json").unlink()
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    assert not (tmp_path / "points.json").exists()
