"""Several state servers and what reads the global database, against a naive recomputation."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import TaskError
from anabranch.stage.global_database import GlobalDatabase, ServerBackup
from anabranch.stage.merged import MergedRun
from anabranch.stage.partials import PartialsSql
from anabranch.stage.service import StateService
from anabranch.stage.store import StateStore, partials_of
from anabranch.stream.batch import START_WATERMARK
from bench.systems.postgres import Postgres
from tests.stage.test_service import ROWS, SAMPLE, World

PARTS = 3


class Part(World):
    """One of the servers, with tuples of its own."""

    def __init__(self, folder: Path, url: str, name: str, part: int, seed: int) -> None:
        self.url, self.name, self.part = url, name, part
        self.lives = 0
        super().__init__(folder, 100, 30, seed)

    def start(self) -> None:
        sites = tuple("abc"[:PARTS])
        update = {"backup": self.url, "name": self.name, "part": self.part, "sites": sites}
        self.stage = self.stage.model_copy(update=update)
        self.store = StateStore(PartialsSql(self.stage), SAMPLE, self.folder)
        database = GlobalDatabase(self.stage, self.store.columns)
        backup = ServerBackup(database, self.part, PARTS, self.store)
        self.service = StateService(self.store, self.grid, 0, backup)
        self.service.begin({"p": 0})
        self.service.end({"p": ROWS})

    def lose(self) -> None:
        """The server and its disk are gone; another begins elsewhere."""
        self.store.close()
        self.lives += 1
        self.folder = self.folder.parent / f"{self.folder.name}-{self.lives}"
        self.start()

    def step(self, draw: random.Random) -> None:
        match draw.choice(["put", "put", "put", "checkpoint", "back up", "crash", "lose"]):
            case "put":
                self.put(draw.choice(self.ranges))
            case "checkpoint":
                self.service.checkpoint()
            case "back up":
                self.service.back_up()
            case "crash":
                self.crash()
            case "lose" if draw.random() < 0.3:
                self.lose()

    def finish(self) -> None:
        for one in self.ranges:
            self.put(one)
        self.service.checkpoint()
        self.service.back_up()


class Servers:
    """All parts, and who reads their results."""

    def __init__(self, folder: Path, url: str, name: str, seed: int) -> None:
        self.draw = random.Random(seed)
        self.parts = [Part(folder / str(n), url, name, n, seed * PARTS + n) for n in range(PARTS)]
        self.after = START_WATERMARK
        self.rows: list[tuple[Any, ...]] = []
        self.read_anew()

    def read_anew(self) -> None:
        one = self.parts[0]
        columns = partials_of(PartialsSql(one.stage), SAMPLE.empty_table()).schema
        self.reader = MergedRun(
            one.stage, columns, one.grid, finite=True, stopped=threading.Event()
        )

    def read(self) -> None:
        """The next results, if there are any; what was read is released now and then."""
        watermark = self.reader._watermark(self.reader._looked())
        end = self.reader._slices.last_due(self.after, watermark)
        if end is None:
            return
        table = self.reader.results(self.after, end)
        self.rows += [tuple(row.values()) for row in table.to_pylist()]
        self.after = end
        if self.draw.random() < 0.5:
            self.reader.release(end, len(self.rows))

    def finish(self) -> list[tuple[Any, ...]]:
        for one in self.parts:
            one.finish()
        for table, end in self.reader.windows(self.after):
            self.rows += [tuple(row.values()) for row in table.to_pylist()]
            self.after = end
        return self.rows

    def expected(self) -> list[tuple[Any, ...]]:
        """Of all their tuples together."""
        everything = sorted(
            (one for part in self.parts for one in part.tuples), key=lambda one: one[0]
        )
        world = self.parts[0]
        mine, world.tuples = world.tuples, everything
        try:
            return world.expected()
        finally:
            world.tuples = mine


@pytest.fixture(params=["file", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield str(tmp_path / "global.duckdb")
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        yield postgres.url


@pytest.mark.parametrize("seed", range(2))
def test_merged_results_after_any_history(tmp_path: Path, database: str, seed: int) -> None:
    servers = Servers(tmp_path, database, f"several-{seed}", seed)
    for _ in range(40):
        match servers.draw.choice(["part", "part", "part", "read", "new reader"]):
            case "part":
                servers.draw.choice(servers.parts).step(servers.draw)
            case "read":
                servers.read()
            case "new reader":
                servers.read_anew()
    found = servers.finish()
    assert found == servers.expected()


def test_who_reads_elsewhere_begins_where_results_were_released(tmp_path: Path) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "reader", 7)
    assert servers.reader.released() == (START_WATERMARK, 0)
    for part in servers.parts:
        part.finish()
    tables = servers.reader.windows(START_WATERMARK)
    table, end = next(tables)
    servers.reader.release(end, len(table))
    servers.read_anew()
    assert servers.reader.released() == (end, len(table))


def test_a_state_is_shown_with_the_offsets_of_all_servers(tmp_path: Path) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "state", 8)
    for number, part in enumerate(servers.parts):
        part.put(part.ranges[0])
        if number:
            part.service.checkpoint()
            part.service.back_up()
    table, offsets = servers.reader.state()
    counted = [t for part in servers.parts[1:] for t in part.tuples[: part.ranges[0].end]]
    widths = 100 // 30 + 1  # of windows that a tuple is in, at most
    assert sum(table.column("_r1").to_pylist()) <= widths * len(counted)
    assert offsets == {"p": servers.parts[-1].ranges[0].end}


def test_a_server_that_comes_back_after_its_successor_begins_with_what_that_had(
    tmp_path: Path,
) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "back", 9)
    part = servers.parts[0]
    part.put(part.ranges[0])
    part.service.checkpoint()
    part.service.back_up()
    for one in part.ranges[1:4]:  # saved here alone, and more than the successor will have
        part.put(one)
        part.service.checkpoint()
    first = part.folder
    part.lose()
    assert part.service.status().offsets["p"] == part.ranges[0].end
    part.put(part.ranges[1])
    part.service.checkpoint()
    part.service.back_up()
    part.store.close()
    part.folder = first
    part.start()
    assert part.service.status().offsets["p"] == part.ranges[1].end
    assert servers.finish() == servers.expected()


def test_one_that_was_taken_over_while_the_database_was_away_learns_it(
    tmp_path: Path,
) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "late", 10)
    part = servers.parts[0]
    part.put(part.ranges[0])
    part.service.checkpoint()
    part.service.back_up()
    old = part.service
    part.folder = tmp_path / "elsewhere"
    part.start()
    new, part.service = part.service, old
    part.put(part.ranges[1])
    old.checkpoint()
    with pytest.raises(TaskError, match="another server has taken over part 1"):
        old.back_up()
    assert new.status().offsets["p"] == part.ranges[0].end


def test_a_save_whose_answer_was_lost_is_not_made_again(tmp_path: Path) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "answer", 12)
    part = servers.parts[0]
    part.put(part.ranges[0])
    part.service.checkpoint()
    part.service.back_up()
    part.store.saved = 0  # as if it had never been told
    part.put(part.ranges[1])
    part.service.checkpoint()
    part.service.back_up()
    assert servers.finish() == servers.expected()


def test_keys_that_are_at_two_servers_though_none_should_be(tmp_path: Path) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "keyed", 13)
    for part in servers.parts[:2]:
        part.stage = part.stage.model_copy(update={"keyed": True})
        part.crash()
        part.put(part.ranges[0])
        part.service.checkpoint()
    servers.parts[0].service.back_up()
    with pytest.raises(TaskError, match=r"the key .* is in the partitions of two servers"):
        servers.parts[1].service.back_up()


def test_a_server_without_partitions_holds_up_nobody(tmp_path: Path) -> None:
    servers = Servers(tmp_path, str(tmp_path / "global.duckdb"), "none", 11)
    idle = servers.parts.pop()
    idle.store.close()
    idle.tuples, idle.folder = [], tmp_path / "empty"
    idle.store = StateStore(PartialsSql(idle.stage), SAMPLE, idle.folder)
    backup = ServerBackup(
        GlobalDatabase(idle.stage, idle.store.columns), idle.part, PARTS, idle.store
    )
    service = StateService(idle.store, idle.grid, 0, backup)
    service.end({})
    service.checkpoint()
    service.back_up()
    assert servers.finish() == servers.expected()


def test_columns_of_partials_are_those_of_a_store(tmp_path: Path) -> None:
    part = Part(tmp_path / "0", str(tmp_path / "g.duckdb"), "columns", 0, 1)
    made: pa.Schema = partials_of(PartialsSql(part.stage), SAMPLE.empty_table()).schema
    assert made == part.store.columns
