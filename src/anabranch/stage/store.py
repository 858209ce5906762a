"""A stage's state in DuckDB: a table of partials per epoch, in memory until the epoch is flushed.

The disk changes in one transaction per checkpoint: the frozen epoch's table, merged by slice and
key, and the offsets that belong to it. Tables on disk are merged with each other as their number
grows, and dropped when no window needs their slices any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from anabranch.stage.partials import SLICE, PartialsSql

FILE = "local.duckdb"
FAN_IN = 16
"""So many tables of one size are merged into one of the next."""
MANY_PUTS = 8
"""An epoch of so many transactions is merged as it is flushed: keys come again and again in it. One
of fewer is written as it is, which is cheaper, and merged with others later."""
_META = """
CREATE TABLE IF NOT EXISTS disk.parts (name VARCHAR, level INTEGER, last_slice BIGINT);
CREATE TABLE IF NOT EXISTS disk.offsets (
    partition VARCHAR, first BIGINT, upto BIGINT, newest BIGINT);
CREATE TABLE IF NOT EXISTS disk.facts (name VARCHAR PRIMARY KEY, value BIGINT);
"""
OffsetRow = tuple[str, int, int, int]


@dataclass(frozen=True)
class PartialsTable:
    """A table of partials. Tables on disk have a level: how often they were merged."""

    name: str
    last_slice: int
    level: int = -1

    @property
    def epoch(self) -> int:
        """The last epoch whose partials are in it."""
        return int(self.name.removeprefix("disk.").removeprefix("e").partition("_")[0])


@dataclass(frozen=True)
class Checkpoint:
    """The facts about the state when it was last flushed."""

    epoch: int
    offsets: list[OffsetRow]
    facts: dict[str, int]


class Transaction:
    """Ends with `commit` or `abort`."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self.db = db
        db.execute("BEGIN")

    def commit(self) -> None:
        self.db.execute("COMMIT")
        self.db.close()

    def abort(self) -> None:
        with suppress(duckdb.Error):  # one that failed has ended by itself
            self.db.execute("ROLLBACK")
        self.db.close()


@dataclass(frozen=True)
class Since:
    """What the global database lacks: the last checkpoint, and the partials to add to those that it
    has; or, if it is the `whole`, to put in the place of those.
    """

    kept: Checkpoint
    partials: pa.Table
    whole: bool


@dataclass(frozen=True)
class StateSnapshot:
    """The content that was committed at a moment. It can be read once."""

    transaction: Transaction
    sql: PartialsSql
    source: str

    def windows(self, first: int, last: int, stride: int, span: int) -> pa.Table:
        try:
            query = self.sql.windows(self.source, first, last, stride, span)
            return self.transaction.db.sql(query).to_arrow_table()
        finally:
            self.transaction.abort()


class StateStore:
    """`sample` has the columns of the tuples that partials are made of. Thread-safe."""

    def __init__(
        self, sql: PartialsSql, sample: pa.Schema, folder: Path | None, memory: str = ""
    ) -> None:
        self._sql = sql
        self._sample = sample
        self._db = duckdb.connect(":memory:")
        self._lock = threading.RLock()
        """Held while the list of parts is read or changed, not while partials are put."""
        self._parts: list[PartialsTable] = []
        self._folder = folder
        self.saved = 2**62
        """The last epoch that is in the global database, if there is one."""
        self._puts: dict[int, int] = {}
        """Transactions of the epochs in memory, roughly: it only says whether to merge them."""
        if memory:
            self._db.execute(f"SET memory_limit = '{memory}'")
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            self._db.execute(f"SET temp_directory = '{_text(folder / 'spill')}'")
            self._db.execute(f"ATTACH '{_text(folder / FILE)}' AS disk")
            self._db.execute(_META)
            rows = self._db.execute("SELECT name, last_slice, level FROM disk.parts").fetchall()
            self._parts = [PartialsTable(f"disk.{name}", last, level) for name, last, level in rows]

    def close(self) -> None:
        self._db.close()

    def checkpoint(self) -> Checkpoint:
        if self._folder is None:
            return Checkpoint(0, [], {})
        offsets = self._db.execute("SELECT * FROM disk.offsets").fetchall()
        facts = dict(self._db.execute("SELECT name, value FROM disk.facts").fetchall())
        return Checkpoint(facts.pop("epoch", 0), offsets, facts)

    @property
    def durable(self) -> bool:
        return self._folder is not None

    def adopt(self, kept: Checkpoint, partials: pa.Table) -> None:
        """Begins with a state that was kept elsewhere, instead of the one here."""
        with self._lock:
            self._replace(list(self._parts), None, "")
        self.open(kept.epoch)
        transaction = self.put(kept.epoch, partials.to_reader())
        transaction.commit()
        self.flush(kept.epoch, -(2**62), kept.offsets, kept.facts)

    def since(self, epoch: int) -> Since:
        """What is on disk, and the partials of it that came after `epoch`, merged. Call it only
        while nothing is flushed. What was saved once is merged here: if the global database has
        forgotten a part of that, it needs the whole.
        """
        kept = self.checkpoint()
        with self._lock:
            flushed = [one for one in self._parts if one.level >= 0]
            whole = any(one.level > 0 and one.epoch > epoch for one in flushed)
            new = [one for one in flushed if whole or one.epoch > epoch]
            names = " UNION ALL ".join(f"SELECT * FROM {one.name}" for one in new)
            if not new:
                return Since(kept, self._empty(), whole)
            merged = self._sql.merged(f"({names})", "TRUE")
            return Since(kept, self._db.cursor().sql(merged).to_arrow_table(), whole)

    def _empty(self) -> pa.Table:
        return partials_of(self._sql, self._sample.empty_table())

    @property
    def columns(self) -> pa.Schema:
        """The columns of tables of partials."""
        return self._empty().schema

    def slices(self) -> dict[int, int]:
        """The existing slices, with the number of partials of each."""
        with self._lock:
            count = f"SELECT {SLICE}, count(*) FROM ({self._all()}) GROUP BY ALL"
            return dict(self._db.execute(count).fetchall()) if self._parts else {}

    def open(self, epoch: int) -> None:
        """Makes the table that an epoch's transactions write to."""
        sample = self._sample.empty_table()
        db = self._db.cursor()
        db.register("sample", sample)
        db.execute(f"CREATE TABLE e{epoch} AS {self._sql.lift('sample')}")
        db.close()
        with self._lock:
            self._parts.append(PartialsTable(f"e{epoch}", 2**62))

    def put(self, epoch: int, partials: pa.RecordBatchReader | None) -> Transaction:
        """A transaction that has written `partials` and is not committed yet."""
        transaction = Transaction(self._db.cursor())
        try:
            if partials is not None:
                self._puts[epoch] = self._puts.get(epoch, 0) + 1
                transaction.db.execute(f"INSERT INTO e{epoch} SELECT * FROM partials")
        except BaseException:
            transaction.abort()
            raise
        return transaction

    def flush(
        self, epoch: int, floor: int, offsets: Iterable[OffsetRow], facts: dict[str, int]
    ) -> None:
        """Writes `epoch`, into which nothing is put any more, with all that belongs to it, and
        forgets what lies before the slice `floor`.
        """
        db = self._db.cursor()
        name = f"e{epoch}"
        if self._folder is None:
            db.close()
            return
        last = db.execute(f"SELECT max({SLICE}) FROM {name}").fetchone()[0]  # type: ignore[index]
        db.execute("BEGIN")
        if last is not None and last >= floor:
            needed = f"{SLICE} >= {floor}"
            content = f"SELECT * FROM {name} WHERE {needed}"
            if self._puts.pop(epoch, 0) >= MANY_PUTS:
                content = self._sql.merged(name, needed)
            db.execute(f"CREATE TABLE disk.{name} AS {content}")
            db.execute("INSERT INTO disk.parts VALUES (?, 0, ?)", [name, last])
        db.execute("DELETE FROM disk.offsets")
        rows = list(offsets)
        if rows:
            db.executemany("INSERT INTO disk.offsets VALUES (?, ?, ?, ?)", rows)
        for key, value in (facts | {"epoch": epoch}).items():
            db.execute("INSERT OR REPLACE INTO disk.facts VALUES (?, ?)", [key, value])
        db.execute("COMMIT")
        with self._lock:
            self._parts = [one for one in self._parts if one.name != name]
            if last is not None and last >= floor:
                self._parts.append(PartialsTable(f"disk.{name}", last, 0))
            self._db.execute(f"DROP TABLE {name}")
        db.close()
        self._forget(floor)
        self._compact(floor)

    def _forget(self, floor: int) -> None:
        """Drops tables that hold nothing from `floor` on."""
        with self._lock:
            gone = [one for one in self._parts if one.level >= 0 and one.last_slice < floor]
            self._replace(gone, None, "")

    def _compact(self, floor: int) -> None:
        """Merges tables of one level once there are enough of them."""
        for level in range(64):
            alike = [one for one in self._parts if one.level == level and one.epoch <= self.saved]
            if len(alike) < FAN_IN:
                return
            source = " UNION ALL ".join(f"SELECT * FROM {one.name}" for one in alike)
            name = f"e{max(one.epoch for one in alike)}_{level + 1}"
            new = PartialsTable(f"disk.{name}", max(one.last_slice for one in alike), level + 1)
            self._replace(alike, new, self._sql.merged(f"({source})", f"{SLICE} >= {floor}"))

    def _replace(self, old: list[PartialsTable], new: PartialsTable | None, content: str) -> None:
        if not old:
            return
        db = self._db.cursor()
        db.execute("BEGIN")
        if new:
            db.execute(f"CREATE TABLE {new.name} AS {content}")
            name = new.name.removeprefix("disk.")
            db.execute("INSERT INTO disk.parts VALUES (?, ?, ?)", [name, new.level, new.last_slice])
        with self._lock:
            for part in old:
                db.execute(f"DROP TABLE {part.name}")
                name = part.name.removeprefix("disk.")
                db.execute("DELETE FROM disk.parts WHERE name = ?", [name])
            db.execute("COMMIT")
            self._parts = [one for one in self._parts if one not in old] + ([new] if new else [])
        db.close()

    def windows(self, first: int, last: int, stride: int, span: int) -> pa.Table:
        """Results of these windows, by window and key: `_w`, the keys, `_r0`, `_r1`, …"""
        with self._lock:
            query = self._sql.windows(f"({self._all()})", first, last, stride, span)
            return self._db.cursor().sql(query).to_arrow_table()

    def snapshot(self) -> StateSnapshot:
        """What is committed now; it can be read later."""
        with self._lock:
            transaction = Transaction(self._db.cursor())
            source = f"({self._all()})"
            transaction.db.execute(f"SELECT count(*) FROM {source} WHERE FALSE").fetchall()
            return StateSnapshot(transaction, self._sql, source)

    def _all(self) -> str:
        return " UNION ALL ".join(f"SELECT * FROM {one.name}" for one in self._parts)


def partials_of(sql: PartialsSql, tuples: pa.Table) -> pa.Table:
    """The partials: one per slice and key."""
    with duckdb.connect(":memory:") as db:
        db.register("tuples", tuples)
        return db.sql(sql.lift("tuples")).to_arrow_table()


def _text(path: Path) -> str:
    return str(path).replace("'", "''")
