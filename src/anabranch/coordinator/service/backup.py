"""A backup of the whole system, made while it runs, and put back where nothing runs yet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.disk.real import own_folder
from anabranch.errors import AnabranchError, SetupError, SiteError
from anabranch.link.messages import HoldState, ReadFile, ReleaseState, StateFiles
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks
from anabranch.runtime.base import Runtime
from anabranch.version import VERSION

MANIFEST, CATALOG, SITES = "backup.json", "catalog.db", "sites"
FORMAT = 1
HOLD_S = 300.0
"""So long a backup may take: sites wait with what they would let go of."""
CALL_S = 30.0
OWN = ("secrets.json", "token")
"""What the coordinator keeps beside its catalog."""


@dataclass(frozen=True)
class Made:
    """A backup: the bytes of each site's state."""

    place: str
    sites: dict[str, int]


class SystemBackup:
    """A backup of the system whose state folder is `state`."""

    def __init__(self, runtime: Runtime, sites: Sites, catalog: Catalog, state: Path) -> None:
        self._runtime = runtime
        self._sites = sites
        self._catalog = catalog
        self._state = state

    async def run(self, folder: Path) -> Made:
        """Writes the backup into `folder`, which must not exist. Nobody changes definitions
        meanwhile. An unfinished backup is removed.
        """
        known = self._catalog.definitions()
        names = self._must_be_up(known)
        _must_be_new(folder)
        growing = folder.with_name(folder.name + ".new")
        await self._runtime.blocking(shutil.rmtree, growing, True)
        own_folder(growing)
        try:
            sizes = await self._held(names, lambda: self._copy(names, growing))
            _write_manifest(growing, sizes)
            growing.rename(folder)
        except BaseException:
            shutil.rmtree(growing, ignore_errors=True)
            raise
        return Made(str(folder), sizes)

    def _must_be_up(self, known: Definitions) -> list[str]:
        """The sites that something is at."""
        for one in known.values():
            if isinstance(one, StreamDef) and one.stage:
                raise SetupError(
                    f"stream {one.name} is a stage, whose state cannot be copied while it runs",
                    remedy="Stop the system and copy its state folder.",
                )
        needed = {one.site for one in known.values() if isinstance(one, StreamDef | TableDef)}
        needed |= {task.site for task in tasks(known.values(), known)}
        alive = set(self._sites.alive())
        for name in sorted(needed - alive):
            problem, remedy = self._sites.absence(name)
            raise SiteError(f"{problem}, and its state belongs into the backup", remedy=remedy)
        return sorted(alive)

    async def _held(
        self, names: Sequence[str], do: Callable[[], Awaitable[dict[str, int]]]
    ) -> dict[str, int]:
        """What `do` gives, while no site lets go of anything."""
        try:
            for name in names:
                await self._sites.call(name, HoldState(HOLD_S), CALL_S)
            done = await do()
        except BaseException:
            await self._released(names)
            raise
        if late := [name for name, held in (await self._released(names)).items() if not held]:
            raise SiteError(
                f"the copy took longer than {HOLD_S:.0f} s, or {late[0]} began anew meanwhile",
                remedy="Try again, to a place that is quicker.",
            )
        return done

    async def _released(self, names: Sequence[str]) -> dict[str, bool]:
        """Which of them have held until now."""
        held = dict.fromkeys(names, False)
        for name in names:
            with suppress(AnabranchError):
                held[name] = await self._sites.call(name, ReleaseState(), CALL_S)
        return held

    async def _copy(self, names: Sequence[str], folder: Path) -> dict[str, int]:
        """Restart points of all sites first: what those count on is there when the rest is read."""
        await self._runtime.blocking(self._copy_own, folder)
        files = {name: await self._sites.call(name, StateFiles(), CALL_S) for name in names}
        sizes = dict.fromkeys(names, 0)
        for first in (True, False):
            for name in names:
                part = files[name][:1] if first else files[name][1:]
                to = folder / SITES / quote(name, safe="")
                sizes[name] += await self._runtime.blocking(self._fetch, name, part, to)
        return sizes

    def _copy_own(self, folder: Path) -> None:
        self._catalog.copy_to(folder / CATALOG)
        for name in OWN:
            if (self._state / name).exists():
                shutil.copy2(self._state / name, folder / name)

    def _fetch(self, site: str, files: Sequence[str], to: Path) -> int:
        peer, size = self._sites.peer(site), 0
        for name in files:
            target = to / name
            own_folder(target.parent)
            with target.open("wb") as out:
                while (
                    data := peer.fetch(ReadFile(name, out.tell()), CALL_S)[0].column(0)[0].as_py()
                ):
                    out.write(data)
                size += out.tell()
        return size


def _write_manifest(folder: Path, sizes: dict[str, int]) -> None:
    """Last: without it what is there is no backup."""
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    told = {"format": FORMAT, "version": VERSION, "made": made, "sites": sizes}
    (folder / MANIFEST).write_text(json.dumps(told, indent=1) + "\n")


def _must_be_new(folder: Path) -> None:
    if folder.exists():
        raise SetupError(
            f"{folder} is there already", remedy="Name a folder that is not there yet."
        )


def restore(folder: Path, state: Path) -> Made:
    """Make `state` what a coordinator and its sites go on from. Raises SetupError for what is no
    whole backup, and where a system has its state already."""
    try:
        told = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        raise SetupError(
            f"{folder} is no whole backup", remedy="Name a folder that `anabranch backup` has made."
        ) from None
    if told["format"] > FORMAT:
        raise SetupError(
            f"anabranch {told['version']} has made this backup, and this is anabranch {VERSION}",
            remedy="Restore it with that version, or a later one.",
        )
    if (state / CATALOG).exists():
        raise SetupError(
            f"a system has its state in {state.resolve()}",
            remedy="Name another folder with --state, or move that one away.",
        )
    own_folder(state)
    for name in (*OWN, SITES):
        if (folder / name).is_dir():
            shutil.copytree(folder / name, state / name, dirs_exist_ok=True)
        elif (folder / name).exists():
            shutil.copy2(folder / name, state / name)
    shutil.copy2(folder / CATALOG, state / f"{CATALOG}.new")
    copy = Catalog(state / f"{CATALOG}.new")
    copy.begin_elsewhere()
    copy.close()
    (state / f"{CATALOG}.new").rename(state / CATALOG)
    return Made(told["made"], told["sites"])
