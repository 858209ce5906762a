"""The restart points of a site's tasks, kept where a killed process leaves them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from anabranch.stream.restart import RestartPoint

Points = Mapping[str, RestartPoint]


class HasPoint(Protocol):
    def restart_point(self) -> RestartPoint: ...


class PointsFile:
    """Written before upstream hears of a point: what upstream then lets go of is never needed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._written: dict[str, RestartPoint] = {}

    def load(self) -> dict[str, RestartPoint]:
        if self._path is None or not self._path.exists():
            return {}
        return {name: point_of(data) for name, data in json.loads(self._path.read_text()).items()}

    def save(self, tasks: Iterable[tuple[str, HasPoint]]) -> None:
        """`tasks` come each behind those they read: a point says what those before it must have
        kept, so theirs, which only rise, are read first."""
        if self._path is None:
            return
        with self._lock:
            points = {name: task.restart_point() for name, task in tasks}
            if points == self._written:
                return
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps({name: asdict(one) for name, one in points.items()}))
            os.replace(temporary, self._path)
            self._written = points


def point_of(data: Mapping[str, object]) -> RestartPoint:
    inputs = data["inputs"]
    assert isinstance(inputs, list | tuple)
    return RestartPoint(**{**data, "inputs": tuple(inputs)})  # type: ignore[arg-type]
