"""A state server's part in the global database: claimed at first, saved after checkpoints."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from anabranch.errors import SiteError
from anabranch.stage.global_database import GENERATION, READER, GlobalDatabase
from anabranch.stage.store import Checkpoint, Store
from anabranch.stream.batch import START_WATERMARK

Since = Callable[[int], tuple[Checkpoint, pa.Table]]
"""The last checkpoint, and the partials that came behind an epoch."""


class Backup:
    """An unreachable database is a `problem`, and is brought up to date when it is back; a part
    that another server has claimed is a TaskError.
    """

    def __init__(self, database: GlobalDatabase, part: int, parts: int, store: Store) -> None:
        """Begins with what is there, if that is newer than what `store` has."""
        self._database = database
        self._part = part
        self._parts = parts
        self._store = store
        self._claimed = False
        self.problem = ""
        self.floor = START_WATERMARK
        """Whoever reads the merged results needs no window that ends up to this."""
        self.elsewhere: int | None = None
        """How far the other parts have come, the last of those that are not idle."""
        store.saved = 0
        try:
            self._claim(store.checkpoint())
        except SiteError as error:
            if not store.checkpoint().epoch:
                raise
            self.problem = error.line()

    def _claim(self, here: Checkpoint, *, begun: bool = False) -> None:
        there = self._database.claim(self._part, here, begun=begun)
        if there.epoch and there.facts[GENERATION] != here.facts.get(GENERATION, 0):
            self._store.adopt(there, self._database.load(self._part))
        self._store.saved, self._claimed = there.epoch, True

    def save(self, since: Since, floor: int) -> Checkpoint | None:
        """Saves, and returns what is there then; None if the database is away."""
        try:
            if not self._claimed:
                self._claim(self._store.checkpoint(), begun=True)
            kept = self._database.save(self._part, since, floor)
        except SiteError as error:
            self.problem = error.line()
            return None
        self._store.saved, self.problem = kept.epoch, ""
        return kept

    def look(self) -> None:
        """Learns how far the others have come."""
        if self._parts == 1:
            return
        try:
            found = self._database.look()
        except SiteError as error:
            self.problem = error.line()
            return
        if reader := found.pop(READER, None):
            self.floor = reader.facts["floor"]
        others = [
            one.facts.get("reached", START_WATERMARK)
            for part, one in found.items()
            if part != self._part
        ]
        self.elsewhere = min((one for one in others if one > START_WATERMARK), default=None)
