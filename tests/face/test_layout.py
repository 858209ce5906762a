"""Pictures stay where they are, and nobody stands on another."""

from __future__ import annotations

from itertools import combinations

import pytest

from anabranch.face.picture import NARROW, WIDE, Canvas, site_points, site_radius


@pytest.mark.parametrize("canvas", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 12, 13, 50])
def test_sites_are_apart_and_inside(count: int, canvas: Canvas) -> None:
    names = [f"s{number}" for number in range(count)]
    points = site_points(names, canvas)
    assert list(points) == names
    assert all(0 < x < canvas.width and 0 < y < canvas.height for x, y in points.values())
    apart = site_radius(count, canvas) if canvas is WIDE else 10
    for (x1, y1), (x2, y2) in combinations(points.values(), 2):
        assert abs(x1 - x2) + abs(y1 - y2) > apart
