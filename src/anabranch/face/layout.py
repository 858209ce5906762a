"""Places things on the system's picture: sites around an ellipse, and what they run inside each.

Pure, and the same names get the same places: a picture whose parts wander cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.face.model import Snapshot

Point = tuple[float, float]


@dataclass(frozen=True)
class Canvas:
    """How large the picture is, in units of its own; `site` is the largest radius of a site."""

    width: float
    height: float
    site: float


FEW = 16
"""Sites that stand on an ellipse, with everything written beside it."""
WIDE, NARROW = Canvas(1240.0, 500.0, 72.0), Canvas(366.0, 460.0, 48.0)


def site_points(names: Sequence[str], canvas: Canvas = WIDE) -> dict[str, Point]:
    """The sites' places: a few stand on an ellipse, many in rows."""
    if len(names) > FEW:
        return _rows(names, canvas)
    points: dict[str, Point] = {}
    for index, name in enumerate(names):
        angle = math.pi + 2 * math.pi * index / len(names)
        x = canvas.width / 2 + (canvas.width / 2 - canvas.site) * math.cos(angle)
        y = canvas.height / 2 + (canvas.height / 2 - canvas.site) * math.sin(angle)
        points[name] = (x, y)
    return points


def _rows(names: Sequence[str], canvas: Canvas) -> dict[str, Point]:
    columns, rows = _grid(len(names), canvas)
    return {
        name: (
            canvas.width * (index % columns + 0.5) / columns,
            canvas.height * (index // columns + 0.5) / rows,
        )
        for index, name in enumerate(names)
    }


def _grid(count: int, canvas: Canvas) -> tuple[int, int]:
    """The numbers of columns and rows, for cells that are about square."""
    columns = math.ceil(math.sqrt(count * canvas.width / canvas.height))
    return columns, math.ceil(count / columns)


def site_radius(count: int, canvas: Canvas = WIDE) -> float:
    """A radius with which neighbours usually do not touch."""
    if count <= FEW:
        return canvas.site * min(1.0, 2.8 / math.sqrt(max(1, count)))
    columns, rows = _grid(count, canvas)
    return 0.36 * min(canvas.width / columns, canvas.height / rows)


def member_points(snapshot: Snapshot, canvas: Canvas = WIDE) -> dict[str, Point]:
    """The places of streams and tasks inside their sites; sinks are not drawn."""
    sites = site_points(sorted(one.name for one in snapshot.sites), canvas)
    members: dict[str, list[str]] = {}
    for stream in snapshot.streams:
        members.setdefault(stream.site, []).append(stream.name)
    for task in snapshot.tasks:
        if not task.sink:
            members.setdefault(task.site, []).append(task.name)
    radius = 0.62 * site_radius(len(sites), canvas)
    points: dict[str, Point] = {}
    for site, names in members.items():
        x, y = sites.get(site, (canvas.width / 2, canvas.height / 2))
        if len(names) == 1:
            points[names[0]] = (x, y)
            continue
        for index, name in enumerate(sorted(names)):
            angle = -math.pi / 2 + 2 * math.pi * index / len(names)
            points[name] = (x + radius * math.cos(angle), y + radius * math.sin(angle))
    return points
