"""The global database of a stage: what its servers have in their checkpoints, for all of them. A
server claims its part first and saves it after checkpoints.

A server saves what came since it last did: in one transaction its new partials, and its offsets. So
the partials of a server always fit the offsets beside them, and another server can go on from
there. The server that has claimed a part owns it; the earlier owner is refused from then on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256

import pyarrow as pa

from anabranch.errors import SiteError, TaskError
from anabranch.plan.spec import opened
from anabranch.plan.stage import Stage
from anabranch.stage.partials import SLICE, PartialsSql
from anabranch.stage.sessions import DatabaseLocation, Rows, Session, place_of
from anabranch.stage.store import Checkpoint, Since, StateStore
from anabranch.stream.batch import START_WATERMARK

MERGE_EVERY = 16
"""Saves between two merges of a part in the database."""
READER = -1
"""The part that whoever reads the merged results notes how far it has come in."""
PART = "_part"
GENERATION = "generation"
"""Among the facts of a checkpoint: how often the part had been taken over by then. A state of an
earlier generation is worth nothing."""
_STAGES = """
CREATE TABLE IF NOT EXISTS anabranch_stages (
    stage TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT NOT NULL, generation BIGINT NOT NULL,
    epoch BIGINT NOT NULL, offsets TEXT NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (stage, part))
"""


class GlobalDatabase:
    """The database of one stage, whose partials have these `columns`. If it cannot be reached,
    calls raise SiteError.
    """

    def __init__(self, stage: Stage, columns: pa.Schema) -> None:
        self._place: DatabaseLocation = place_of(str(opened(stage.backup)))
        self._name = stage.name
        self._sql = PartialsSql(stage)
        self._columns = columns
        self._kept_columns = columns.insert(0, pa.field(PART, pa.int32()))
        self._table = f"anabranch_stage_{sha256(stage.name.encode()).hexdigest()[:16]}"
        self._owner = secrets.token_hex(8)
        self._keyed = stage.keyed and stage.parts > 1
        self._saves = 0
        self._prepared = False

    # -- a server's own part ---------------------------------------------------------------------

    def claim(self, part: int, local: Checkpoint, *, begun: bool = False) -> Checkpoint:
        """Owns a part from now on; returns what is saved of it. If that is newer than what is
        `local`, or of another generation, a new generation begins with it; unless work has `begun`:
        then another server has continued it, and keeps it.
        """
        with self._place.transaction() as db:
            self._prepare(db)
            row = self._row(db, part)
            if row is None:
                self._insert(db, part, local.facts.get(GENERATION, 0))
                return Checkpoint(0, [], {})
            generation, epoch, offsets, facts = row
            saved = _checkpoint(epoch, offsets, facts)
            if not saved.epoch:
                generation = local.facts.get(GENERATION, 0)
            elif not _succeeds(local, saved, generation):
                if begun:
                    raise _taken_over(part)
                generation += 1
            db.run(
                "UPDATE anabranch_stages SET owner = ?, generation = ?"
                " WHERE stage = ? AND part = ?",
                (self._owner, generation, self._name, part),
            )
        saved.facts[GENERATION] = generation
        return saved

    def _prepare(self, db: Session) -> None:
        if not self._prepared:
            db.lock()
            db.run(_STAGES)
            db.create(self._table, self._kept_columns)
            self._prepared = True

    def _insert(self, db: Session, part: int, generation: int) -> None:
        db.run(
            "INSERT INTO anabranch_stages VALUES (?, ?, ?, ?, 0, '[]', '{}')",
            (self._name, part, self._owner, generation),
        )

    def _row(self, db: Session, part: int) -> tuple[int, int, str, str] | None:
        rows = db.run(
            "SELECT generation, epoch, offsets, facts FROM anabranch_stages"
            f" WHERE stage = ? AND part = ? {self._place.locking}",
            (self._name, part),
        )
        return tuple(rows[0]) if rows else None

    def load(self, part: int) -> pa.Table:
        """The partials of a part."""
        names = ", ".join(f'"{name}"' for name in self._columns.names)
        with self._place.transaction() as db:
            return db.read(
                f"SELECT {names} FROM {self._table} WHERE {PART} = {part}", self._columns
            )

    def save(self, part: int, since: Callable[[int], Since], floor: int) -> Checkpoint:
        """Saves in one transaction; returns what is saved then. `since` gives what came after the
        epoch that is saved: only the database knows which that is, in case one of its answers was
        lost.
        """
        with self._place.transaction() as db:
            rows = db.run(
                "SELECT owner, epoch FROM anabranch_stages WHERE stage = ? AND part = ?"
                f" {self._place.locking}",
                (self._name, part),
            )
            if not rows or rows[0][0] != self._owner:
                raise _taken_over(part)
            lacks = since(rows[0][1])
            kept, partials = lacks.kept, lacks.partials
            if rows[0][1] >= kept.epoch:
                return kept
            if lacks.whole:
                db.run(f"DELETE FROM {self._table} WHERE {PART} = ?", (part,))
            number = pa.array([part] * len(partials), pa.int32())
            rows_here = partials.cast(self._columns).add_column(0, PART, number)
            db.append(self._table, rows_here)
            db.run(f'DELETE FROM {self._table} WHERE {PART} = ? AND "{SLICE}" < ?', (part, floor))
            self._note(db, part, kept)
            if self._keyed:
                self._check_keys(db)
            self._saves += 1
            if self._saves % MERGE_EVERY == 0:
                self._merge(db, part)
        return kept

    def _note(self, db: Session, part: int, kept: Checkpoint) -> None:
        db.run(
            "UPDATE anabranch_stages SET epoch = ?, offsets = ?, facts = ?"
            " WHERE stage = ? AND part = ?",
            (kept.epoch, json.dumps(kept.offsets), json.dumps(kept.facts), self._name, part),
        )

    def _check_keys(self, db: Session) -> None:
        """Checks, if the statement promised it, that no key is at two servers, because each of them
        would give results for it.
        """
        keys = ", ".join(self._sql.keys)
        twice = db.run(
            f'SELECT {keys} FROM {self._table} GROUP BY "{SLICE}", {keys}'
            f" HAVING min({PART}) <> max({PART}) LIMIT 1"
        )
        if twice:
            key = ", ".join(str(value) for value in twice[0])
            raise TaskError(
                f"the key {key} is in the partitions of two servers, though keyed = true says none"
                " is",
                remedy="Drop the query and create it without keyed: results are merged then.",
            )

    def _merge(self, db: Session, part: int) -> None:
        """Makes one partial of several that were saved for the same slice and key."""
        mine = f"{PART} = {part}"
        merged = self._sql.merged(self._table, mine)
        partials = db.read(merged, self._columns)
        db.run(f"DELETE FROM {self._table} WHERE {mine}")
        db.append(
            self._table, partials.add_column(0, PART, pa.array([part] * len(partials), pa.int32()))
        )

    # -- all parts -------------------------------------------------------------------------------

    def look(self) -> dict[int, Checkpoint]:
        """The checkpoint of every part that has been claimed."""
        with self._place.transaction() as db:
            self._prepare(db)
            return self._look(db)

    def _look(self, db: Session) -> dict[int, Checkpoint]:
        rows: Rows = db.run(
            "SELECT part, epoch, offsets, facts FROM anabranch_stages WHERE stage = ?",
            (self._name,),
        )
        return {part: _checkpoint(*rest) for part, *rest in rows}

    def slices(self) -> dict[int, int]:
        """The existing slices, with the number of partials of each."""
        with self._place.transaction() as db:
            return dict(db.run(f'SELECT "{SLICE}", count(*) FROM {self._table} GROUP BY 1'))

    def partials(self, low: int, high: int) -> pa.Table:
        """The partials of all parts, merged, from the slice `low` to below `high`."""
        with self._place.transaction() as db:
            return self._partials(db, f'"{SLICE}" >= {low} AND "{SLICE}" < {high}')

    def all(self) -> tuple[pa.Table, dict[int, Checkpoint]]:
        """All partials, merged, and the parts at the same moment."""
        self.look()  # so that there are tables
        with self._place.transaction(one_moment=True) as db:
            return self._partials(db, "TRUE"), self._look(db)

    def _partials(self, db: Session, where: str) -> pa.Table:
        return db.read(self._sql.merged(self._table, where), self._columns)

    def release(self, facts: Mapping[str, int]) -> None:
        """Notes how far the reader of the merged results has come."""
        with self._place.transaction() as db:
            self._prepare(db)
            if self._row(db, READER) is None:
                self._insert(db, READER, 0)
            self._note(db, READER, Checkpoint(0, [], dict(facts)))


def _checkpoint(epoch: int, offsets: str, facts: str) -> Checkpoint:
    return Checkpoint(int(epoch), [tuple(row) for row in json.loads(offsets)], json.loads(facts))


def _taken_over(part: int) -> TaskError:
    return TaskError(f"another server has taken over part {part + 1} of the state")


def _succeeds(local: Checkpoint, saved: Checkpoint, generation: int) -> bool:
    """Whether the state `local` is the saved one, or a later one of the same server."""
    return local.epoch >= saved.epoch and local.facts.get(GENERATION, 0) == generation


class ServerBackup:
    """An unreachable database is a `problem`, and is brought up to date when it is back; a part
    that another server has claimed is a TaskError.
    """

    def __init__(self, database: GlobalDatabase, part: int, parts: int, store: StateStore) -> None:
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

    def _claim(self, local: Checkpoint, *, begun: bool = False) -> None:
        saved = self._database.claim(self._part, local, begun=begun)
        if saved.epoch and saved.facts[GENERATION] != local.facts.get(GENERATION, 0):
            self._store.adopt(saved, self._database.load(self._part))
        self._store.saved, self._claimed = saved.epoch, True

    def save(self, since: Callable[[int], Since], floor: int) -> Checkpoint | None:
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
            saved = self._database.look()
        except SiteError as error:
            self.problem = error.line()
            return
        if reader := saved.pop(READER, None):
            self.floor = reader.facts["floor"]
        others = [
            one.facts.get("reached", START_WATERMARK)
            for part, one in saved.items()
            if part != self._part
        ]
        self.elsewhere = min((one for one in others if one > START_WATERMARK), default=None)
