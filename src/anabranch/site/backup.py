"""What a site gives of its state folder to who makes a backup of the whole system.

Whoever goes on from a copy needs what its restart points count on. So nothing is let go of while
files are read: restart points stand still, at all sites at once, and with them whatever waits for
their being kept; and no file is removed. All else only grows.
"""

from __future__ import annotations

import re

import pyarrow as pa

from anabranch.disk.real import RealFolder
from anabranch.link.messages import HoldState, ReadFile, ReleaseState, StateFiles
from anabranch.runtime.base import Runtime, Spawned
from anabranch.site.tasks.restart_points import POINTS, PointsKeeper

PIECE_BYTES = 4_000_000
_OURS = re.compile(r"lock|scratch|.*\.new|.*\.spill\.\d{20}\.log|log\.jsonl.*|spark-.*")
"""Of this process, and of no use to another."""
COLUMN = "data"


class StateGiver:
    """Gives the state in the `folder` in which `keeper` keeps restart points."""

    def __init__(self, runtime: Runtime, folder: RealFolder, keeper: PointsKeeper) -> None:
        self._runtime = runtime
        self._folder = folder
        self._path = folder.path
        self._keeper = keeper
        self._hold: Spawned[None] | None = None

    async def hold(self, asked: HoldState) -> None:
        self._folder.hold()
        await self._keeper.hold(asked.seconds)
        self._hold = self._runtime.spawn(self._end(asked.seconds), "hold")

    async def _end(self, seconds: float) -> None:
        """Whoever asked for it may be gone."""
        await self._runtime.sleep(seconds)
        await self._runtime.blocking(self._folder.release)

    async def release(self, asked: ReleaseState) -> bool:
        if self._hold:
            self._hold.cancel()
            self._hold = None
        await self._runtime.blocking(self._folder.release)
        return self._keeper.release()

    def files(self, asked: StateFiles) -> tuple[str, ...]:
        """The restart points first: what they count on is there when the rest is read. Journals
        last: they have all that logs have. Those of a log in its order: who begins another segment
        does not write to the one before it."""
        found = sorted(
            str(file.relative_to(self._path))
            for file in self._path.rglob("*")
            if file.is_file() and not _OURS.fullmatch(file.relative_to(self._path).parts[0])
        )
        return tuple(sorted(found, key=lambda name: (name != POINTS, ".journal." in name)))

    def read(self, asked: ReadFile) -> tuple[pa.Table, None]:
        """Nothing at the end of the file, and of one that has gone meanwhile: nobody needs that."""
        data = b""
        if asked.name in self.files(StateFiles()):
            with (self._path / asked.name).open("rb") as file:
                file.seek(asked.offset)
                data = file.read(PIECE_BYTES)
        return pa.table({COLUMN: pa.array([data], pa.binary())}), None
