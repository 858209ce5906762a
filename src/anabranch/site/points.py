"""The restart points of a site's tasks, kept where a killed process leaves them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from anabranch.stream.restart import RestartPoint, point_of


class HasPoint(Protocol):
    def restart_point(self) -> RestartPoint: ...


class PointsFile:
    """Written before upstream hears of a point: what upstream then lets go of is never needed.

    The points of tasks that ran here before stay until they are dropped: after a failure ours may
    be the only ones."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._points: dict[str, RestartPoint] = {}
        if path and path.exists():
            kept = json.loads(path.read_text())
            self._points = {name: point_of(data) for name, data in kept.items()}

    def all(self) -> dict[str, RestartPoint]:
        with self._lock:
            return dict(self._points)

    def save(self, tasks: Iterable[tuple[str, HasPoint]]) -> None:
        """`tasks` come each behind those they read: a point says what those before it must have
        kept, so theirs, which only rise, are read first."""
        with self._lock:
            new = {name: task.restart_point() for name, task in tasks}
            self._write(self._points | new)

    def forget(self, names: Iterable[str]) -> None:
        with self._lock:
            gone = set(names)
            self._write({name: one for name, one in self._points.items() if name not in gone})

    def _write(self, points: dict[str, RestartPoint]) -> None:
        if points == self._points:
            return
        if self._path:
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps({name: asdict(one) for name, one in points.items()}))
            os.replace(temporary, self._path)
        self._points = points
