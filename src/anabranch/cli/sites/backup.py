"""`anabranch backup` and `restore`: a copy of a whole system, and the system from the copy."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.show.tables import err, working
from anabranch.coordinator.requests import MakeBackup
from anabranch.coordinator.service import backup as copies
from anabranch.coordinator.service.state import find_coordinator
from anabranch.units import show_bytes

BACKUP_S = 900.0


def backup(folder: Path, state: Path) -> None:
    coordinator = find_coordinator(state)
    with working("Copying ..."):
        sites = coordinator.send(MakeBackup(str(folder.absolute())), BACKUP_S)
    err.print(f"{folder}: the catalog, and the state of {_shown(sites)}")


def restore(folder: Path, state: Path) -> None:
    made = copies.restore(folder, state)
    err.print(
        f"{state}: as of {made.place}, with the state of {_shown(made.sites)}."
        " `anabranch up` goes on from it."
    )


def _shown(sites: dict[str, int]) -> str:
    return ", ".join(f"{name} ({show_bytes(size)})" for name, size in sites.items()) or "no site"
