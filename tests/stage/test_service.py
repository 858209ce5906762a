"""A state server's work against a naive recomputation: any order, repeats, checkpoints, crashes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import AggregateCall, Item
from anabranch.plan.stage import Stage
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.partials import PartialsSql
from anabranch.stage.service import Counts, StateService
from anabranch.stage.store import FAN_IN, StateStore
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.panes import Grid
from bench.stage.input import stage_over

SAMPLE = pa.schema([("_slice", pa.int64()), ("_k0", pa.string()), ("_a0", pa.int64())])
ROWS = 300


def stage(width: int, slide: int) -> Stage:
    made = stage_over(Path("."), width, slide)
    value = (Expr.of("r", "value"),)
    calls = [
        AggregateCall(function=name, arguments=value, name=f"_agg{n}", type=type)
        for n, (name, type) in enumerate(
            [
                ("SUM", "bigint"),
                ("COUNT", "bigint"),
                ("MIN", "bigint"),
                ("MAX", "bigint"),
                ("AVG", "double"),
            ]
        )
    ]
    key = Item(expr=Expr.of("r", "key"), name="key", type="string")
    aggregate = made.aggregate.model_copy(update={"keys": (key,), "calls": tuple(calls)})
    return made.model_copy(update={"aggregate": aggregate})


class World:
    """Tuples of one partition, and a service that may crash."""

    def __init__(self, folder: Path, width: int, slide: int, seed: int) -> None:
        self.draw = random.Random(seed)
        self.folder = folder
        self.stage = stage(width, slide)
        self.grid = Grid(width, slide)
        draw = self.draw
        self.tuples = [
            (
                n * 10 + draw.randrange(10),
                draw.choice([None, "a", "b", "ü"]),
                draw.choice([None, draw.randrange(-99, 99)]),
            )
            for n in range(ROWS)
        ]
        bounds = sorted({0, ROWS, *(draw.randrange(ROWS) for _ in range(12))})
        self.ranges = [OffsetRange("p", a, b) for a, b in itertools.pairwise(bounds)]
        self.start()

    def start(self) -> None:
        self.store = StateStore(PartialsSql(self.stage), SAMPLE, self.folder)
        self.service = StateService(self.store, self.grid, 0)
        self.service.begin({"p": 0})
        self.service.end({"p": ROWS})

    def crash(self) -> None:
        """Memory is gone, what is on disk stays."""
        self.store.close()
        self.start()

    def put(self, range: OffsetRange) -> bool:
        rows = self.tuples[range.begin : range.end]
        slices = [self.grid.pane(ts) for ts, *_ in rows]
        columns = [slices, *map(list, list(zip(*rows, strict=True))[1:])]
        tuples = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, SAMPLE, strict=True)], schema=SAMPLE
        )
        sql = PartialsSql(self.stage)
        db = duckdb.connect()
        db.register("tuples", tuples)
        lift = self.draw.choice([sql.lift, sql.single])
        partials = db.sql(lift("tuples")).to_arrow_table()
        self.service.judged(range, Counts(max(ts for ts, *_ in rows), len(rows), 0))
        return self.service.put(range, partials.to_reader())

    def expected(self) -> list[tuple[Any, ...]]:
        found = []
        for window in range(self.grid.open_at(0), self.tuples[-1][0] // self.grid.slide + 1):
            inside = [
                t for t in self.tuples if self.grid.start(window) <= t[0] < self.grid.end(window)
            ]
            keys = sorted({t[1] for t in inside}, key=lambda k: (k is not None, k or ""))
            for key in keys:
                mine = [t[2] for t in inside if t[1] == key and t[2] is not None]
                some: tuple[Any, ...] = (None, 0, None, None, None)
                if mine:
                    some = (sum(mine), len(mine), min(mine), max(mine), sum(mine) / len(mine))
                found.append((window, key, *some))
        return found


@pytest.mark.parametrize(("width", "slide"), [(100, 100), (100, 30), (90, 30), (50, 80)])
@pytest.mark.parametrize("seed", range(2))
def test_results_after_any_history(tmp_path: Path, width: int, slide: int, seed: int) -> None:
    world = World(tmp_path, width, slide, seed)
    draw = world.draw
    after, rows = START_WATERMARK, []
    for _ in range(150):
        done = world.service.status().offsets["p"] == ROWS
        match draw.choice(
            ["put", "put", "put", "checkpoint", "results", "results", "crash", "release"]
        ):
            case "put":
                one = draw.choice(world.ranges)
                known = world.service.gaps({"p": ROWS})
                missing = any(gap.begin <= one.begin < gap.end for gap in known)
                assert world.put(one) == missing
            case "checkpoint":
                world.service.checkpoint()
            case "results":
                due = world.service.due(after, 0.0)
                if due.end is not None:
                    table = world.service.results(after, due.end)
                    rows += [tuple(row.values()) for row in table.to_pylist()]
                    after = due.end
                elif done:
                    break
            case "crash" if draw.random() < 0.3:
                world.crash()
            case "release" if draw.random() < 0.5 and after > START_WATERMARK:
                world.service.release(after)
    for one in world.ranges:
        world.put(one)
    while (due := world.service.due(after, 0.0)).end is not None:
        table = world.service.results(after, due.end)
        rows += [tuple(row.values()) for row in table.to_pylist()]
        after = due.end
    assert due.status.watermark == END_WATERMARK
    assert rows == world.expected()


def test_what_a_query_of_the_state_shows_belongs_to_its_offsets(tmp_path: Path) -> None:
    world = World(tmp_path, 100, 100, seed=1)
    for one in world.ranges[:4]:
        world.put(one)
    table, status = world.service.state()
    counted = sum(t[2] is not None for t in world.tuples[: status.offsets["p"]])
    assert sum(table.column("_r1").to_pylist()) == counted


def test_a_checkpoint_writes_what_changed_and_nothing_twice(tmp_path: Path) -> None:
    world = World(tmp_path, 100, 100, seed=2)
    world.put(world.ranges[0])
    first = world.service.checkpoint()
    assert world.service.checkpoint() == first
    world.put(world.ranges[1])
    assert world.service.checkpoint() > first


def test_a_state_that_outgrows_its_memory_goes_to_the_disk(tmp_path: Path) -> None:
    store = StateStore(PartialsSql(stage(100, 100)), SAMPLE, tmp_path, memory="100MB")
    service = StateService(store, Grid(100, 100), 0)
    service.begin({"p": 0})
    service.end({"p": 40})
    count = 100_000
    for at in range(40):
        part = OffsetRange("p", at, at + 1)
        keys = [f"a key of some length {at * count + n}" for n in range(count)]
        ones = pa.array([1] * count)
        names = ["_slice", "_k0", *(f"_p{n}" for n in range(6))]
        values = [*[ones] * 4, ones.cast(pa.float64()), ones]
        partials = pa.table([pa.array([0] * count), keys, *values], names=names)
        service.judged(part, Counts(at, count, 0))
        assert service.put(part, partials.to_reader())
    assert sum(file.stat().st_size for file in (tmp_path / "spill").iterdir()) > 10_000_000
    assert service.status().rows == 40 * count
    assert service.checkpoint() == 1
    service.close()


def written() -> int:
    """Bytes that this process has written since it began."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("wchar"))


def test_bytes_of_a_checkpoint_follow_what_changed(tmp_path: Path) -> None:
    """Also when it is the one that has others merged: that costs what they have, now and then."""
    store = StateStore(PartialsSql(stage(100, 100)), SAMPLE, tmp_path)
    service = StateService(store, Grid(100, 100), 0)
    service.begin({"p": 0})
    service.end({"p": 100})
    draw = random.Random(5)
    sizes = []
    for at in range(3 * FAN_IN):
        count = 400_000 if at == 0 else 50
        numbers = [pa.array([draw.getrandbits(50) for _ in range(count)]) for _ in range(3)]
        names = ["_slice", "_k0", *(f"_p{n}" for n in range(6))]
        values = [numbers[1], numbers[2], *numbers[1:], numbers[1].cast(pa.float64()), numbers[2]]
        keys = numbers[0].cast(pa.string())
        partials = pa.table([pa.array([0] * count), keys, *values], names=names)
        part = OffsetRange("p", at, at + 1)
        service.judged(part, Counts(at, count, 0))
        service.put(part, partials.to_reader())
        before = written()
        service.checkpoint()
        sizes.append(written() - before)
    service.close()
    large, small = sizes[0], sorted(sizes[1:])
    assert large > 400_000 * 8
    assert small[len(small) // 2] < large / 50
    again = [size for size in sizes[1:] if size > large / 10]
    assert len(again) <= 2, "the state is written again and again"
