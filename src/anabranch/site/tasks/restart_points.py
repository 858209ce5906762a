"""The restart points of a site's tasks, kept where a killed process leaves them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anabranch.runtime.base import Runtime
from anabranch.stream.restart import Points, RestartPoint, join_all, point_of

LONG = 1_000_000
"""Bytes behind which the file is written anew, with one line per task."""


class PointsFile:
    """Written before upstream hears of a point: what upstream then lets go of is never needed.

    A line says what is new; the last one about a task holds. A line that was cut off by the death
    of the process was told nobody. The points of tasks that ran here before stay until they are
    dropped: after a failure ours may be the only ones."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._points: dict[str, RestartPoint] = {}
        self._bytes = LONG
        if path and path.exists():
            for line in path.read_text().splitlines():
                self._points |= _read(line)
            self._points = {name: one for name, one in self._points.items() if one.inputs}

    def all(self) -> dict[str, RestartPoint]:
        """Those that are written."""
        return dict(self._points)

    def news(self, points: Points) -> dict[str, RestartPoint]:
        """Those that are not written yet, joined with what is: they only rise. Waits for nobody."""
        kept = self._points
        joined = {name: point.join(kept.get(name, point)) for name, point in points.items()}
        return {name: point for name, point in joined.items() if point != kept.get(name)}

    def save(self, points: Points) -> None:
        with self._lock:
            if news := self.news(points):
                self._write(news, join_all(self._points, news))

    def forget(self, names: Iterable[str]) -> None:
        with self._lock:
            gone = set(names) & self._points.keys()
            if gone:
                left = {name: one for name, one in self._points.items() if name not in gone}
                self._write(dict.fromkeys(gone, RestartPoint((), 0)), left)

    def _write(self, news: Points, whole: dict[str, RestartPoint]) -> None:
        """Only what is on the disk is known to be kept."""
        if self._path is not None:
            self._write_file(self._path, news, whole)
        self._points = whole

    def _write_file(self, path: Path, news: Points, points: Points) -> None:
        line = _line(news)
        self._bytes += len(line)
        if self._bytes < LONG:
            with path.open("a") as file:
                file.write(line)
            return
        temporary = path.with_suffix(".new")
        whole = _line(points)
        temporary.write_text(whole)
        os.replace(temporary, path)
        self._bytes = len(whole)


class PointsKeeper:
    """Those who keep points while others are being written share the next write."""

    def __init__(self, runtime: Runtime, file: PointsFile) -> None:
        self._runtime = runtime
        self._file = file
        self._next: dict[str, RestartPoint] = {}
        self._writing = False
        self._written = runtime.signal()

    async def keep(self, points: Points) -> None:
        """Once all of them are written."""
        while news := self._file.news(points):
            self._next = join_all(self._next, news)
            if self._writing:
                await self._written.wait()
                continue
            self._writing, now, self._next = True, self._next, {}
            try:
                await self._runtime.blocking(self._file.save, now)
            finally:
                self._writing = False
                self._written.notify()


def _line(points: Points) -> str:
    return json.dumps({name: _plain(one) for name, one in points.items()}) + "\n"


def _plain(point: RestartPoint) -> dict[str, Any]:
    """As `asdict` would have it, but quickly."""
    return {
        "inputs": point.inputs, "output": point.output, "instant": point.instant,
        "incarnation": point.incarnation,
        "readers": {name: _plain(one) for name, one in point.readers.items()},
    }  # fmt: skip


def _read(line: str) -> dict[str, RestartPoint]:
    try:
        kept: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return {name: point_of(data) for name, data in kept.items()}
