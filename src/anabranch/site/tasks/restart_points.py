"""The restart points of a site's tasks, kept so that they survive a killed process."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from anabranch.disk.folder import Appending, Folder
from anabranch.disk.records import record, spared_records
from anabranch.errors import Damaged, StorageError
from anabranch.runtime.base import Runtime
from anabranch.stream.restart import Points, RestartPoint, join_all, point_of

LONG = 1_000_000
"""Bytes behind which the file is written anew, with one record of all tasks."""
POINTS = "points"
LOOK_S = 1.0


class PointsFile:
    """Written before upstream hears of a point: what upstream then lets go of is never needed.

    A record says what is new; the last one about a task holds. One that was cut off by the death
    of the process was told nobody. The points of tasks that ran here before stay until they are
    dropped: after a failure ours may be the only ones.

    Points only rise, so older ones are true as well: a task whose newest one is damaged goes on
    from what is left, if those before it still have what comes after that."""

    def __init__(self, folder: Folder | None, *, synced: bool = False) -> None:
        """`synced` means that snapshots outlive the machine's power, too."""
        self._folder = folder
        self._synced = synced
        self._lock = threading.Lock()
        self._points: dict[str, RestartPoint] = {}
        self._file: Appending | None = None
        self._bytes = 0
        self.damage: Damaged | None = None
        """What was wrong with the file when it was opened."""
        if folder:
            data = folder.read(POINTS) or b""
            payloads, damaged = spared_records(data)
            for payload in payloads:
                self._points |= _read(payload)
            self._points = {name: one for name, one in self._points.items() if one.inputs}
            if damaged is not None:
                self.damage = _set_aside(folder, data, damaged)

    def all(self) -> dict[str, RestartPoint]:
        """The points that are written."""
        return dict(self._points)

    def kept(self, task: str) -> int:
        """The position up to which a task's first input is not needed any more, as far as that is
        written.
        """
        point = self._points.get(task)
        return point.inputs[0] if point else 0

    def news(self, points: Points) -> dict[str, RestartPoint]:
        """The points that are not written yet, joined with those that are: they only rise. Waits
        for nobody.
        """
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
        """Writes them. Only what is on the disk counts as kept."""
        if self._folder is not None:
            self._keep(self._folder, news, whole)
        self._points = whole

    def _keep(self, folder: Folder, news: Points, whole: Points) -> None:
        added = record(_plain_text(news))
        self._bytes += len(added)
        if self._file and self._bytes < LONG:
            self._add(self._file, added)
            return
        self.close()
        data = record(_plain_text(whole))
        folder.replace(POINTS, data)
        self._file = folder.append_to(POINTS, len(data))
        self._bytes = len(data)

    def _add(self, file: Appending, data: bytes) -> None:
        """Adds to the file. After an error the file is written again."""
        try:
            file.append(data)
            if self._synced:
                file.sync()
        except StorageError:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file. It may be written to again."""
        if self._file:
            self._file.close()
            self._file = None


def _set_aside(folder: Folder, data: bytes, damaged: int) -> Damaged:
    """What was read stays as it was: the file itself is going to be written anew."""
    copy = f"{POINTS}.damaged-{zlib.crc32(data):08x}"
    folder.replace(copy, data)
    return Damaged(
        f"the record at byte {damaged} is damaged; {copy} beside it is a copy of the file",
        place=folder.place(POINTS),
        remedy="Tasks go on from older points where that can be; `anabranch status` names those"
        " that cannot.",
    )


class PointsKeeper:
    """Keepers of points share the next write while another is under way."""

    def __init__(self, runtime: Runtime, file: PointsFile) -> None:
        self._runtime = runtime
        self._file = file
        self._next: dict[str, RestartPoint] = {}
        self._writing = False
        self._written = runtime.signal()
        self._held_until = 0.0

    async def hold(self, seconds: float) -> None:
        """Nothing is written from now on until `release`, or for so long."""
        self._held_until = self._runtime.now() + seconds
        while self._writing:
            await self._written.wait()

    def release(self) -> bool:
        """Whether nothing was written since `hold`."""
        held = self._held_until > self._runtime.now()
        self._held_until = 0.0
        self._written.notify()
        return held

    async def keep(self, points: Points) -> None:
        """Returns once all of them are written."""
        while (left := self._held_until - self._runtime.now()) > 0:
            await self._written.wait(left)
        while news := self._file.news(points):
            self._next = join_all(self._next, news)
            if self._writing or self._held_until > self._runtime.now():
                await self._written.wait(LOOK_S)
                continue
            self._writing, now, self._next = True, self._next, {}
            try:
                await self._runtime.blocking(self._file.save, now)
            finally:
                self._writing = False
                self._written.notify()


def _plain_text(points: Points) -> bytes:
    return json.dumps({name: _plain(one) for name, one in points.items()}).encode()


def _plain(point: RestartPoint) -> dict[str, Any]:
    """The same as `asdict`, but quicker."""
    return {
        "inputs": point.inputs,
        "output": point.output,
        "instant": point.instant,
        "incarnation": point.incarnation,
        "readers": {name: _plain(one) for name, one in point.readers.items()},
        "snapshot": asdict(point.snapshot) if point.snapshot else None,
    }


def _read(payload: bytes) -> dict[str, RestartPoint]:
    kept: dict[str, Any] = json.loads(payload)
    return {name: point_of(data) for name, data in kept.items()}
