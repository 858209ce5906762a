"""Restart points survive the process."""

from __future__ import annotations

from pathlib import Path

from anabranch.site.points import Kept, PointsFile
from anabranch.stream.restart import RestartPoint


class Standing:
    def __init__(self, point: RestartPoint, birth: int = 7) -> None:
        self.point = point
        self.birth = birth

    def restart_point(self) -> RestartPoint:
        return self.point


def test_they_are_there_again(tmp_path: Path) -> None:
    points = {"a": RestartPoint((3, 4), 2), "b": RestartPoint((2,), 9, instant=-5)}
    file = PointsFile(tmp_path / "points.json")
    assert file.all() == {}
    file.save((name, Standing(point)) for name, point in points.items())
    kept = {name: Kept(7, point) for name, point in points.items()}
    assert PointsFile(tmp_path / "points.json").all() == kept


def test_those_of_tasks_that_run_here_no_more_stay_until_they_are_dropped(tmp_path: Path) -> None:
    """After a failure they may be the only ones."""
    point = RestartPoint((3,), 2)
    PointsFile(tmp_path / "points.json").save([("a", Standing(point)), ("b", Standing(point))])
    again = PointsFile(tmp_path / "points.json")
    newer = RestartPoint((5,), 4)
    again.save([("a", Standing(newer, birth=8))])
    assert again.all() == {"a": Kept(8, newer), "b": Kept(7, point)}
    again.forget(["a"])
    assert PointsFile(tmp_path / "points.json").all() == {"b": Kept(7, point)}


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    file = PointsFile(tmp_path / "points.json")
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    (tmp_path / "points.json").unlink()
    file.save([("a", Standing(RestartPoint((1,), 1)))])
    assert not (tmp_path / "points.json").exists()
