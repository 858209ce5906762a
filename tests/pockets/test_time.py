"""Pockets are told how far their input has come, and when it has ended."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.disk.real import RealFolder
from anabranch.errors import ConfigError
from anabranch.link.wire import EVENT_TIME, wire_schema
from anabranch.plan.spec import Program
from anabranch.pocket import Pocket
from anabranch.site.programs import ticks
from anabranch.site.programs.pocket import PocketBody
from anabranch.site.programs.snapshots import KeptState, Snapshots
from anabranch.site.programs.submission import submission
from anabranch.site.tasks.body import Produced, Taken
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch
from tests.docs.pages import blocks
from tests.pockets.test_state import Clock
from tests.site.fakes import COLUMNS, batch

COUNTING = """
from anabranch.pocket import Pocket

class Counts(Pocket):
    query, output = "SELECT x FROM s", "CREATE STREAM counts (text STRING)"

    def open(self):
        self.seen = 0

    def row(self, row):
        self.seen += 1

    def watermark(self, time):
        yield {"text": f"{self.seen} up to {time}"}

    def close(self):
        yield {"text": f"{self.seen} in all"}
"""
OUTPUT = pa.schema({"text": pa.string()})


def body(code: str = COUNTING, **changes: object) -> PocketBody:
    program = Program(
        code=code, path="/nowhere/counts.py", class_name="Counts", every_us=20, **changes
    )  # type: ignore[arg-type]
    made = PocketBody(None, "Counts", program, COLUMNS, OUTPUT)  # type: ignore[arg-type]
    made.open()
    return made


def rows(produced: Produced) -> list[tuple[str, int]]:
    """The texts and event times of what came."""
    table = produced.table
    return list(zip(table["text"].to_pylist(), table["_ts"].to_pylist(), strict=True))


def given(made: PocketBody, first: int, count: int, watermark: int) -> list[tuple[str, int]]:
    """What comes of so many tuples, whose event times are their positions, and this watermark."""
    batches = [batch(first, count)] if count else []
    return rows(made.step([Taken(batches, first + count - 1, watermark)]))


def test_it_is_told_the_time_at_whole_multiples_and_of_the_end() -> None:
    made = body()
    assert given(made, 1, 3, START_WATERMARK) == []
    assert given(made, 4, 2, 19) == []
    assert given(made, 6, 0, 45) == [("5 up to 20", 20), ("5 up to 40", 40)]
    assert given(made, 6, 0, 45) == []
    (last,) = given(made, 50, 1, END_WATERMARK)
    assert last == ("6 in all", 50)
    made.close()  # what it has given at the end is not given again


def test_tuples_come_behind_the_time_that_they_are_not_before() -> None:
    made = body()
    assert given(made, 15, 10, START_WATERMARK) == []  # 15 to 24, of which 5 are before 20
    assert given(made, 25, 0, 20) == [("5 up to 20", 20)]
    assert given(made, 25, 0, 40) == [("10 up to 40", 40)]


def test_many_moments_are_not_one_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "AT_ONCE", 3)
    made, found = body(), []
    step = made.step([Taken([batch(1, 1), batch(101, 1)], 101, 110)])
    while step.more:
        assert step.watermark <= 110
        found += rows(step)
        step = made.step([Taken([], 101, 110)])
    assert step.watermark == 110
    expected = [(f"1 up to {t}", t) for t in range(20, 101, 20)]
    assert found + rows(step) == expected


def test_the_end_of_an_input_without_tuples() -> None:
    assert given(body(), 1, 0, END_WATERMARK) == [("0 in all", 0)]


# -- however the input is cut --------------------------------------------------------------------

TRACE = """
from anabranch.pocket import Pocket

class Trace(Pocket):
    query, output = "SELECT n FROM s", "CREATE STREAM trace (text STRING)"

    def open(self):
        self.calls = 0

    def row(self, row):
        self.calls += 1
        yield {"text": f"{self.calls}: {row['n']} at {row['_ts']}"}

    def watermark(self, time):
        self.calls += 1
        yield {"text": f"{self.calls}: {time}", "_ts": time - 7}

    def close(self):
        yield {"text": f"{self.calls} calls"}
"""
LATENESS = 30


class Times:
    """Event times in any order that a lateness allows, with gaps."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        newest, self.times = 1_000, []
        for _ in range(rng.randint(1, 60)):
            newest += rng.choice([0, 0, 1, 5, 200])
            self.times.append(rng.randint(newest - LATENESS, newest))
        self.rng = rng

    def taken(self, start: int, end: int) -> Taken:
        """These tuples, and a watermark that may hold behind them: not always the newest one."""
        numbers = pa.array(range(start, end), pa.int64())
        columns = [numbers, pa.array(self.times[start:end], pa.int64()), numbers]
        data = pa.RecordBatch.from_arrays(columns, schema=wire_schema(COLUMNS))
        batches = [Batch("S", start + 1, 0, 0, data)] if start < end else []
        return Taken(batches, end, self._watermark(end))

    def _watermark(self, end: int) -> int:
        promised = min(self.times[end:], default=max(self.times))
        newest = max(self.times[:end], default=START_WATERMARK)
        return min(promised, self.rng.choice([newest, newest - LATENESS, START_WATERMARK]))

    def cuts(self) -> list[int]:
        inner = self.rng.choices(range(len(self.times) + 1), k=self.rng.randint(0, 9))
        return [0, *sorted(inner), len(self.times)]


VISIT = pa.schema(
    {"customer": pa.int64(), "sales": pa.int64(), "began": pa.int64(), "ended": pa.int64()}
)


def trace(
    snapshots: Snapshots | None = None,
    code: str = TRACE,
    name: str = "Trace",
    output: pa.Schema = OUTPUT,
) -> PocketBody:
    program = Program(code=code, path="/nowhere/t.py", class_name=name, every_us=25)
    made = PocketBody(None, name, program, COLUMNS, output, snapshots)  # type: ignore[arg-type]
    if snapshots is None:
        made.open()
    return made


def whole(made: PocketBody, steps: Sequence[Taken]) -> list[tuple[str, int]]:
    """What comes is never before the watermark that was promised behind what came before."""
    found, reached, promised = [], START_WATERMARK, START_WATERMARK
    for taken in steps:
        reached = max(reached, taken.watermark)
        produced = made.step([Taken(taken.batches, taken.last, reached)])
        assert all(time >= promised for _, time in rows(produced))
        promised = produced.watermark
        found += rows(produced)
    return found


def at_once(times: Times) -> list[tuple[str, int]]:
    count = len(times.times)
    return whole(trace(), [times.taken(0, count), Taken([], count, END_WATERMARK)])


@pytest.mark.parametrize("seed", range(60))
def test_what_it_gives_does_not_depend_on_how_its_input_was_cut(seed: int) -> None:
    times = Times(seed)
    steps = [times.taken(start, end) for start, end in pairwise(times.cuts())]
    steps.append(Taken([], len(times.times), END_WATERMARK))
    assert whole(trace(), steps) == at_once(times)


@pytest.mark.parametrize("seed", range(30))
def test_nor_on_a_kill_in_between(tmp_path: Path, seed: int) -> None:
    times, point, clock = Times(seed), 0, Clock()
    kept = KeptState(RealFolder(tmp_path / "state"), lambda: point)
    found: list[tuple[str, int]] = []
    for start, end in pairwise(times.cuts()):
        made = trace(Snapshots(kept, resume=clock.now > 0, now=clock))
        made.begin_after(start)
        made.open()
        clock.now += 10.0
        step = made.step([times.taken(start, end)])
        assert step.restartable
        found += rows(step)
        point = end
    found += whole(made, [Taken([], len(times.times), END_WATERMARK)])
    assert found == at_once(times)


@pytest.mark.parametrize("seed", range(20))
def test_the_documented_sessions(seed: int) -> None:
    """However the input is cut, each visit comes once, when its end is certain."""
    (code,) = [one.text for one in blocks("python") if "class Visits" in one.text]
    gap = 40
    code = code.replace("GAP = 300_000_000", f"GAP = {gap}").replace(
        'row["customer"]', "row['n'] % 3"
    )
    times = Times(seed)
    steps = [times.taken(start, end) for start, end in pairwise(times.cuts())]
    made = trace(None, code, "Visits", VISIT)
    found, reached = [], START_WATERMARK
    for taken in [*steps, Taken([], len(times.times), END_WATERMARK)]:
        reached = max(reached, taken.watermark)
        found += made.step([Taken(taken.batches, taken.last, reached)]).table.to_pylist()
    expected = []
    for customer in range(3):
        visit: list[int] = []
        for time in [*sorted(times.times[customer::3]), END_WATERMARK]:
            if visit and time - visit[-1] > gap:
                expected.append((customer, len(visit), visit[0], visit[-1]))
                visit = []
            visit.append(time)
    assert sorted(tuple(row[name] for name in VISIT.names) for row in found) == sorted(expected)
    assert [row[EVENT_TIME] for row in found] == sorted(row[EVENT_TIME] for row in found)


def test_one_that_is_dropped_runs_its_close_to_the_end(tmp_path) -> None:  # type: ignore[no-untyped-def]
    note = tmp_path / "note"
    code = COUNTING + f"        __import__('pathlib').Path({str(note)!r}).write_text('closed')\n"
    made = body(code)
    made.close()
    assert note.read_text() == "closed"


def test_a_close_that_gives_nothing_is_as_before() -> None:
    code = COUNTING.replace('yield {"text": f"{self.seen} in all"}', "self.seen = None")
    made = body(code)
    assert given(made, 1, 2, END_WATERMARK) == []


def test_every_is_a_duration() -> None:
    class Odd(Pocket):
        query, output, every = "s", "t", "often"

        def row(self, row: dict[str, object]) -> None: ...

    with pytest.raises(ConfigError, match=r"its every is 'often'. It is a duration such as '1s'"):
        submission(Odd, "", "odd.py")


@pytest.mark.parametrize("promise", ["deterministic", "stateless"])
def test_what_is_told_the_time_has_a_state(promise: str) -> None:
    class Both(Pocket):
        query, output = "s", "t"

        def row(self, row: dict[str, object]) -> None: ...

        def watermark(self, time: int) -> None: ...

    setattr(Both, promise, True)
    with pytest.raises(ConfigError, match=f"it says {promise}, and what it gives in watermark"):
        submission(Both, "", "both.py")
