"""The global checkpoint in a real PostgreSQL: servers lost for good, a database that is away."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from anabranch.errors import TaskError
from anabranch.stage.global_database import GlobalDatabase, ServerBackup
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.partials import PartialsSql
from anabranch.stage.service import StateService
from anabranch.stage.store import FAN_IN, StateStore
from anabranch.stream.batch import START_WATERMARK
from bench.systems.postgres import Postgres
from tests.stage.test_service import ROWS, SAMPLE, World


class BackedUp(World):
    """A world whose state is also in PostgreSQL."""

    def __init__(self, folder: Path, url: str, name: str, seed: int) -> None:
        self.url, self.name = url, name
        super().__init__(folder, 100, 30, seed)

    def start(self) -> None:
        stage = self.stage.model_copy(update={"backup": self.url, "name": self.name})
        self.store = StateStore(PartialsSql(stage), SAMPLE, self.folder)
        backup = ServerBackup(GlobalDatabase(stage, self.store.columns), 0, 1, self.store)
        self.service = StateService(self.store, self.grid, 0, backup)
        self.service.begin({"p": 0})
        self.service.end({"p": ROWS})

    def lose(self, folder: Path) -> None:
        """The server and its disk are gone; another begins elsewhere."""
        self.store.close()
        self.folder = folder
        self.start()

    def finish(self) -> list[tuple[object, ...]]:
        """Take all that is missing, and give all results that are kept."""
        for one in self.ranges:
            self.put(one)
        rows, after = [], START_WATERMARK
        while (due := self.service.due(after, 0.0)).end is not None:
            table = self.service.results(after, due.end)
            rows += [tuple(row.values()) for row in table.to_pylist()]
            after = due.end
        return rows


@pytest.mark.parametrize("seed", range(3))
def test_another_server_goes_on_from_the_global_checkpoint(
    tmp_path: Path, postgres: Postgres, seed: int
) -> None:
    world = BackedUp(tmp_path / "0", postgres.url, f"lost-{seed}", seed)
    for number in range(1, 30):
        match world.draw.choice(["put", "put", "checkpoint", "back up", "crash", "lose"]):
            case "put":
                world.put(world.draw.choice(world.ranges))
            case "checkpoint":
                world.service.checkpoint()
            case "back up":
                world.service.back_up()
            case "crash":
                world.crash()
            case "lose":
                world.lose(tmp_path / str(number))
    assert world.finish() == world.expected()


def test_a_database_that_is_away_holds_up_nothing(tmp_path: Path, postgres: Postgres) -> None:
    world = BackedUp(tmp_path / "a", postgres.url, "away", seed=5)
    world.put(world.ranges[0])
    world.service.checkpoint()
    world.service.back_up()
    postgres.stop()
    try:
        for one in world.ranges[1:5]:
            world.put(one)
            world.service.checkpoint()
            world.service.back_up()
        status = world.service.status()
        assert status.backup_behind == 4
        assert "away" in status.backup_problem
        world.crash()
        assert world.service.status().offsets["p"] == world.ranges[4].end
    finally:
        postgres.start()
    world.service.back_up()
    assert world.service.status().backup_behind == 0
    world.lose(tmp_path / "b")
    assert world.service.status().offsets["p"] == world.ranges[4].end
    assert world.finish() == world.expected()


def test_who_was_replaced_saves_no_more(tmp_path: Path, postgres: Postgres) -> None:
    world = BackedUp(tmp_path / "a", postgres.url, "replaced", seed=6)
    world.put(world.ranges[0])
    world.service.checkpoint()
    world.service.back_up()
    old = world.service
    world.folder = tmp_path / "b"
    world.start()
    new, world.service = world.service, old
    world.put(world.ranges[1])
    old.checkpoint()
    with pytest.raises(TaskError, match="another server has taken over"):
        old.back_up()
    assert new.status().offsets["p"] == world.ranges[0].end


@pytest.mark.parametrize("seed", range(2))
def test_a_database_that_has_forgotten_saves_gets_them_again(
    tmp_path: Path, postgres: Postgres, seed: int
) -> None:
    """It was failed over to a copy that is behind, while tables of the state here were merged that
    it has in part; then the server is lost, too."""
    world = BackedUp(tmp_path / "a", postgres.url, f"behind-{seed}", seed)
    world.ranges = [OffsetRange("p", first, first + 5) for first in range(0, ROWS, 5)]
    before: Rows = {}
    for number in range(2 * FAN_IN):
        world.put(world.ranges[number])
        world.service.checkpoint()
        world.service.back_up()
        if number == FAN_IN // 2:
            before = remembered(postgres, world.name)
    restore(postgres, world.name, before)
    world.put(world.ranges[-1])
    world.service.checkpoint()
    world.service.back_up()
    assert world.service.status().backup_problem == ""
    world.lose(tmp_path / "b")
    assert world.finish() == world.expected()


Rows = dict[str, list[tuple[object, ...]]]


def partials_table(stage: str) -> str:
    return f"anabranch_stage_{sha256(stage.encode()).hexdigest()[:16]}"


def remembered(postgres: Postgres, stage: str) -> Rows:
    """The rows of a stage, by table."""
    return {
        partials_table(stage): postgres.execute(f"SELECT * FROM {partials_table(stage)}"),
        "anabranch_stages": postgres.execute(
            "SELECT * FROM anabranch_stages WHERE stage = %s", stage
        ),
    }


def restore(postgres: Postgres, stage: str, before: Rows) -> None:
    postgres.execute(f"DELETE FROM {partials_table(stage)}")
    postgres.execute("DELETE FROM anabranch_stages WHERE stage = %s", stage)
    for table, rows in before.items():
        for row in rows:
            marks = ", ".join(["%s"] * len(row))
            postgres.execute(f"INSERT INTO {table} VALUES ({marks})", *row)
