"""A disk that is full for a moment ends nothing: acks, the watch and take-overs go on."""

from __future__ import annotations

import sqlite3
from random import Random
from typing import Any

import pytest

from anabranch.coordinator.base.catalog import Catalog
from anabranch.errors import StorageError
from anabranch.site.tasks.restart_points import PointsFile
from simulation import plan
from simulation.faults import Strike
from simulation.world import World

FULL_MS = 5_000


class FullDisk:
    """A database that writes nothing while `full`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.full = False
        self.refused = 0

    def __enter__(self) -> Any:
        return self._db.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._db.__exit__(*error)

    def execute(self, text: str, *values: Any) -> Any:
        self._refuse(text)
        return self._db.execute(text, *values)

    def executemany(self, text: str, *values: Any) -> Any:
        self._refuse(text)
        return self._db.executemany(text, *values)

    def _refuse(self, text: str) -> None:
        if self.full and not text.startswith("SELECT"):
            self.refused += 1
            raise sqlite3.OperationalError("database or disk is full")

    def close(self) -> None:
        self._db.close()


def test_the_catalog_says_that_its_disk_is_full_and_has_changed_nothing() -> None:
    catalog = Catalog(":memory:")
    disk = FullDisk(catalog._db)
    catalog._db = disk  # type: ignore[assignment]
    catalog.remember("epoch", "1")
    disk.full = True
    with pytest.raises(StorageError, match="disk is full"):
        catalog.remember("epoch", "2")
    disk.full = False
    assert catalog.setting("epoch") == "1"


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_take_overs_go_on_and_all_results_come_while_disks_were_full(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(plan.draw(Random(seed)), Random(seed))
    disk = FullDisk(world.catalog._db)
    world.catalog._db = disk  # type: ignore[assignment]
    refused = [0]
    write = PointsFile._write

    def written(self: PointsFile, *what: Any) -> None:
        if disk.full:
            refused[0] += 1
            raise StorageError("no room for restart points")
        write(self, *what)

    monkeypatch.setattr(PointsFile, "_write", written)
    task = world.plan.tasks[0].name
    world.suffer([Strike(at=1_000, lasts=20_000, pauses=False, task=task, role="primary")])
    assert world.clock.run(20_000, lambda: world.deployed)
    disk.full = True
    world.clock.run(world.clock.now + FULL_MS, lambda: False)
    assert refused[0], "nobody kept a point meanwhile: this tries nothing"
    disk.full = False
    assert world.clock.run(world.clock.now + 300_000, lambda: world.done)
    assert disk.refused
    assert world.clock.run(world.clock.now + 10_000, lambda: world.moved > 0)
    world.close()
