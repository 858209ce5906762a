"""The facts that the coordinator must not forget, in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from anabranch.disk.real import RealFolder
from anabranch.disk.records import read_records, record
from anabranch.errors import ConfigError, Damaged, StorageError
from anabranch.link.message import Origin
from anabranch.plan.catalog import AnyDef, Definition
from anabranch.plan.spec import Spec
from anabranch.version import VERSION

IN_MEMORY = Path(":memory:")
"""For a catalog that nothing is to be kept of."""
Kind = Literal["sample", "period"]
"""What was measured at a moment, or the mean of a period: tables of their own."""
FORMAT = 1
"""Of what is in the file; a later one cannot be read."""
_DEFINITION: TypeAdapter[AnyDef] = TypeAdapter(Definition)
_TABLES = """
CREATE TABLE IF NOT EXISTS definition (
    position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE COLLATE NOCASE, body TEXT);
CREATE TABLE IF NOT EXISTS site (
    name TEXT PRIMARY KEY, address TEXT NOT NULL, pid INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS life (
    site TEXT PRIMARY KEY, number INTEGER NOT NULL, started TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS intention (
    number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sample (position INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS period (position INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
"""


class Intention(Spec):
    """The additions, drops and replacements of a change that is under way, as whole definitions, so
    that they can be completed or taken back after a crash.
    """

    add: tuple[Definition, ...] = ()
    drop: tuple[Definition, ...] = ()
    replace: tuple[Definition, ...] = ()
    drops_first: bool = True
    """What is dropped is taken off its sites before anything is put onto any."""

    @property
    def names(self) -> set[str]:
        return {one.name for one in (*self.add, *self.drop, *self.replace)}


def _upgraded(body: str) -> str:
    """The definitions in today's form; a version before `sink_shared` wrote some of them."""
    return body if '"sink_shared"' in body else json.dumps(_with_shared(json.loads(body)))


def _with_shared(value: Any) -> Any:
    from anabranch.connectors import SINKS  # imports Spark, which takes a moment

    if isinstance(value, list):
        return [_with_shared(one) for one in value]
    if not isinstance(value, dict):
        return value
    value = {name: _with_shared(one) for name, one in value.items()}
    if value.get("kind") == "query" and (sink := value.get("sink")):
        known = SINKS.get(sink["name"])
        value["sink_shared"] = bool(known and known.shared)
    return value


class ChangeCount:
    """How many changes there have been, in a file beside the catalog's: SQLite takes a lost or
    damaged end of its log for one that was never written, and begins anew where its file is
    gone."""

    def __init__(self, catalog: Path) -> None:
        self._folder = RealFolder(catalog.absolute().parent)
        self._name = f"{catalog.name}.changes"

    def compare(self, known: int) -> None:
        """Raises Damaged if the catalog, which knows so many, lacks some."""
        found = read_records(self._folder.read(self._name) or b"", self._folder.place(self._name))
        noted = int(found.payloads[-1]) if found.payloads else 0
        if noted > known:
            raise Damaged(
                f"the catalog knows of {known} changes, and there were {noted}: it has lost what"
                " was created or dropped last",
                place=self._folder.place(self._name.removesuffix(".changes")),
                remedy=f"Restore it from a backup; or remove {self._name}, start with what is left,"
                " and create anew what is missing.",
            )

    def note(self, changes: int) -> None:
        """Where there is no room, fewer are known, and less is noticed."""
        with suppress(StorageError):
            self._folder.replace(self._name, record(b"%d" % changes))


class Catalog:
    """Definitions in the order in which they were made, known sites, settings. Each change is
    durable when the call returns; a change of several definitions happens whole or not at all. A
    change that sites must carry out is an intention until all of them have done so. Each call
    raises StorageError if the disk fails; then nothing has changed.
    """

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, AnyDef] | None = None
        self._intended: dict[int, Intention] | None = None
        self._place = str(path)
        self._counted = 0
        """No number up to it is given out any more."""
        with self._disk():
            self._db = sqlite3.connect(path, check_same_thread=False)
            pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
            self._db.executescript(pragmas + _TABLES)
        self._changes = None if str(path) == str(IN_MEMORY) else ChangeCount(Path(path))
        self._check_format()
        if self._changes:
            self._changes.compare(int(self.setting("changes") or 0))
        if not self.setting("identity"):
            self.remember("identity", uuid4().hex)

    @cached_property
    def origin(self) -> Origin:
        """Tells sites this catalog from others."""
        folder = Path(self._place).absolute().parent
        return Origin(self.setting("identity") or "", str(folder))

    def copy_to(self, path: Path) -> None:
        """Copies the catalog as it is now, whatever is written meanwhile."""
        with self._disk(), self._lock:
            copy = sqlite3.connect(path)
            self._db.backup(copy)
            copy.close()

    def begin_elsewhere(self) -> None:
        """It is a copy: what runs by the one that it was copied from is not its own."""
        self.forget_sites()
        self.remember("address", "")
        self.remember("identity", uuid4().hex)

    def _check_format(self) -> None:
        """Raises ConfigError for a catalog of a later version."""
        written, writer = int(self.setting("format") or 0), self.setting("version")
        if written > FORMAT:
            self._db.close()
            raise ConfigError(
                f"anabranch {writer} has written this catalog in format {written}; this is"
                f" anabranch {VERSION}, which reads formats up to {FORMAT}",
                place=self._place,
                remedy="Start the version that has written it, or a later one.",
            )

    def _read(self, body: str) -> AnyDef:
        """The definition in `body`. Raises ConfigError if another version has written it in its own
        way.
        """
        try:
            return _DEFINITION.validate_json(_upgraded(body))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            row = self._db.execute("SELECT value FROM setting WHERE name = 'version'").fetchone()
            writer = row[0] if row else "of an earlier version"
            raise ConfigError(
                f"a definition cannot be read: {where}: {first['msg']}. This is anabranch"
                f" {VERSION}; anabranch {writer} has written the catalog",
                place=self._place,
                remedy="Start that version, or a later one.",
            ) from None

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a mistake of whoever asks
        except sqlite3.OperationalError as error:
            raise self._away(error) from error
        except sqlite3.DatabaseError as error:
            raise Damaged(
                f"the catalog is damaged: {error}",
                place=self._place,
                remedy="Restore it from a backup; or move the state folder away, start again, and"
                " create anew what ran.",
            ) from error
        except OSError as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> StorageError:
        return StorageError(
            f"the catalog {self._place} cannot be read or written: {error}",
            remedy="See that the disk has room and is mounted.",
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, self._disk():
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The changes inside are kept whole at its end, or not at all."""
        with self._lock, self._disk(), self._db:
            yield

    def definitions(self) -> dict[str, AnyDef]:
        """The definitions by name; the same object until something changes."""
        with self._reading():
            if self._known is None:
                rows = self._db.execute("SELECT body FROM definition ORDER BY position").fetchall()
                definitions = [self._read(body) for (body,) in rows]
                self._known = {definition.name: definition for definition in definitions}
            return self._known

    def intend(self, intention: Intention, number: int | None = None) -> int:
        """Keeps an intention until a change says that it is done. Returns its number: a new one, or
        that of the intention whose place it takes.
        """
        with self._writing():
            self._intended = None
            row = (number, intention.model_dump_json())
            cursor = self._db.execute("REPLACE INTO intention VALUES (?, ?)", row)
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def intentions(self) -> dict[int, Intention]:
        """The intentions that are not done yet, by number; the same object until something
        changes.
        """
        with self._reading():
            if self._intended is None:
                rows = self._db.execute("SELECT number, body FROM intention ORDER BY number")
                self._intended = {
                    n: Intention.model_validate_json(_upgraded(body)) for n, body in rows
                }
            return self._intended

    def change(
        self,
        add: Iterable[AnyDef],
        drop: Iterable[str],
        replace: Iterable[AnyDef] = (),
        intention: int | None = None,
    ) -> None:
        """Makes all of the changes or none. `replace` gives existing definitions another content.
        `intention` is the intention that this completes or takes back.
        """
        with self._writing():
            self._known = self._intended = None
            now = (("format", str(FORMAT)), ("version", VERSION))
            self._db.executemany("REPLACE INTO setting VALUES (?, ?)", now)
            self._db.execute("DELETE FROM intention WHERE number = ?", (intention,))
            self._db.executemany(
                "DELETE FROM definition WHERE name = ?", [(name,) for name in drop]
            )
            self._db.executemany(
                "INSERT INTO definition (name, body) VALUES (?, ?)",
                [(definition.name, definition.model_dump_json()) for definition in add],
            )
            self._db.executemany(
                "UPDATE definition SET body = ? WHERE name = ?",
                [(definition.model_dump_json(), definition.name) for definition in replace],
            )
            row = self._db.execute("SELECT value FROM setting WHERE name = 'changes'").fetchone()
            changes = int(row[0] if row else 0) + 1
            self._db.execute("REPLACE INTO setting VALUES ('changes', ?)", (str(changes),))
        if self._changes:
            self._changes.note(changes)

    def replace(self, definitions: Iterable[AnyDef]) -> None:
        """Gives existing definitions another content."""
        self.change((), (), definitions)

    def sites(self) -> dict[str, tuple[str, int]]:
        """Site name → (address, process id), as last heard."""
        with self._reading():
            rows = self._db.execute("SELECT name, address, pid FROM site").fetchall()
        return {name: (address, pid) for name, address, pid in rows}

    def lives(self) -> dict[str, tuple[int, str]]:
        """Site → the number of its newest process, and when that was started, as last heard."""
        with self._reading():
            rows = self._db.execute("SELECT site, number, started FROM life").fetchall()
        return {site: (number, started) for site, number, started in rows}

    def remember_life(self, site: str, number: int, started: str) -> None:
        with self._writing():
            self._db.execute("REPLACE INTO life VALUES (?, ?, ?)", (site, number, started))

    def remember_site(self, name: str, address: str, pid: int) -> None:
        with self._writing():
            self._db.execute("REPLACE INTO site VALUES (?, ?, ?)", (name, address, pid))

    def forget_sites(self) -> None:
        with self._writing():
            self._db.execute("DELETE FROM site")
            self._db.execute("UPDATE life SET started = ''")

    def setting(self, name: str) -> str | None:
        with self._reading():
            row = self._db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def remember(self, name: str, value: str) -> None:
        with self._writing():
            self._db.execute("REPLACE INTO setting VALUES (?, ?)", (name, value))

    def next_number(self) -> int:
        """A number greater than all before it, even after a restart: it is kept before it is used.
        Epochs and creations are counted together.
        """
        with self._writing():
            row = self._db.execute("SELECT value FROM setting WHERE name = 'epoch'").fetchone()
            number = int(row[0] if row else 0) + 1
            self._db.execute("REPLACE INTO setting VALUES ('epoch', ?)", (str(number),))
            return number

    def next_moment(self, now_us: int) -> int:
        """The clock's time or a later one: greater than all that were given before, even if the
        clock was set back.
        """
        with self._writing():
            row = self._db.execute("SELECT value FROM setting WHERE name = 'moment'").fetchone()
            moment = max(now_us, int(row[0] if row else 0) + 1)
            self._db.execute("REPLACE INTO setting VALUES ('moment', ?)", (str(moment),))
            return moment

    def pass_over(self, number: int) -> None:
        """Takes note of a number that somebody has seen. It was given out, though this catalog may
        not know it, because it may be an older copy. The next number is greater.
        """
        if number > self._counted:
            with self._writing():
                self._db.execute(
                    "INSERT INTO setting VALUES ('epoch', ?) ON CONFLICT (name) DO UPDATE"
                    " SET value = max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER))",
                    (str(number),),
                )
                self._counted = number

    def samples(self, kind: Kind) -> list[str]:
        """The measurements of the system, the oldest first."""
        with self._reading():
            rows = self._db.execute(f"SELECT body FROM {kind} ORDER BY position").fetchall()
        return [body for (body,) in rows]

    def add_sample(self, kind: Kind, body: str, keep: int) -> None:
        """Adds a measurement, and keeps the last `keep`."""
        with self._writing():
            self._db.execute(f"INSERT INTO {kind} (body) VALUES (?)", (body,))
            self._db.execute(
                f"DELETE FROM {kind} WHERE position <="
                f" (SELECT position FROM {kind} ORDER BY position DESC LIMIT 1 OFFSET ?)",
                (keep,),
            )

    def close(self) -> None:
        self._db.close()
