"""The state of a pocket goes on where it was, or the pocket says that it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.disk.real import RealFolder
from anabranch.errors import ConfigError, TaskError
from anabranch.plan.spec import Program
from anabranch.pocket import Pocket
from anabranch.site.programs.pocket import PocketBody
from anabranch.site.programs.snapshots import KeptState, Snapshots
from anabranch.site.programs.submission import submission
from anabranch.site.tasks.body import Produced, Taken
from anabranch.stream.batch import END_WATERMARK
from tests.site.fakes import COLUMNS, batch

TOTAL = """
from collections import defaultdict
from dataclasses import dataclass, field
from anabranch.pocket import Pocket

@dataclass
class Sum:
    of: int = 0

class Total(Pocket):
    query, output = "SELECT n FROM s", "CREATE STREAM total (text STRING)"

    def open(self):
        self.sums = defaultdict(lambda: Sum(0))

    def row(self, row):
        one = self.sums[row["n"] % 2]
        assert isinstance(one, Sum)
        one.of += row["n"]
        yield {"text": f"{one.of}"}

    def close(self):
        yield {"text": "over"}
"""
OUTPUT = pa.schema({"text": pa.string()})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A pocket whose site may be killed, with what then is left: its state folder, and the position
    of its restart point."""

    def __init__(self, folder: Path, code: str = TOTAL, **changes: Any) -> None:
        self.kept = KeptState(RealFolder(folder), lambda: self.point)
        self.code, self.changes = code, changes
        self.point = 0
        self.clock = Clock()

    def start(self, *, resume: bool = True) -> PocketBody:
        program = Program(code=self.code, path="/nowhere/t.py", class_name="Total", **self.changes)
        snapshots = Snapshots(self.kept, resume=resume, now=self.clock)
        made = PocketBody(None, "Total", program, COLUMNS, OUTPUT, snapshots)  # type: ignore[arg-type]
        made.begin_after(self.point)
        made.open()
        return made

    def give(self, made: PocketBody, first: int, count: int, watermark: int = 0) -> Produced:
        """What so many tuples give, a second after those before; acknowledged downstream."""
        self.clock.now += 2.0
        batches = [batch(first, count)] if count else []
        produced = made.step([Taken(batches, first + count - 1, watermark)])
        if produced.restartable:
            self.point = first + count - 1
        return produced


def texts(produced: Produced) -> list[str]:
    return produced.table["text"].to_pylist()


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_results_go_on_as_if_nothing_had_happened(tmp_path: Path, cut: int) -> None:
    calm = Site(tmp_path / "calm")
    expected = texts(calm.give(calm.start(resume=False), 1, 10))
    site = Site(tmp_path / "killed")
    made = site.start(resume=False)
    found = texts(site.give(made, 1, cut))
    made = site.start()
    assert found + texts(site.give(made, cut + 1, 10 - cut)) == expected


def test_a_restart_begins_where_the_state_was_kept(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    made = site.start(resume=False)
    site.give(made, 1, 3)
    site.clock.now -= 2.0  # at once
    produced = made.step([Taken([batch(4, 2)], 5, 0)])
    assert not produced.restartable
    assert site.point == 3
    assert texts(site.give(site.start(), 4, 2)) == texts(produced)


def test_only_states_that_a_restart_may_need_are_kept(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    made = site.start(resume=False)
    for first in (1, 2, 3, 4):
        site.give(made, first, 1)
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["3.state", "4.state"]


@pytest.mark.parametrize("damage", ["gone", "cut", "changed"])
def test_a_pocket_never_goes_on_with_an_empty_state(tmp_path: Path, damage: str) -> None:
    site = Site(tmp_path / "state")
    site.give(site.start(resume=False), 1, 4)
    file = tmp_path / "state" / "4.state"
    whole = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(whole[:-3] if damage == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    for _ in range(2):  # at every restart
        made = site.start()
        assert made.lost
        assert made.lost.message == (
            "pocket Total failed: its state after input tuple 4 is not in its site's state folder,"
            " so it would go on with an empty one"
        )
        with pytest.raises(TaskError, match="Drop the pocket and create it again"):
            site.give(made, 5, 1)


def test_one_that_is_created_again_begins_anew(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    site.give(site.start(resume=False), 1, 4)
    made = site.start(resume=False)
    assert texts(site.give(made, 5, 1)) == texts(
        (other := Site(tmp_path / "other")).give(other.start(resume=False), 5, 1)
    )


def test_what_cannot_be_kept_is_refused_at_once(tmp_path: Path) -> None:
    code = TOTAL.replace("defaultdict(lambda: Sum(0))", "__import__('threading').Lock()")
    with pytest.raises(
        TaskError,
        match=r"its state cannot be kept: TypeError: cannot pickle"
        r".*Define snapshot\(\) and restore",
    ):
        Site(tmp_path / "state", code).start(resume=False)


def test_a_pocket_may_say_what_its_state_is(tmp_path: Path) -> None:
    own = (
        "    def snapshot(self):\n        return dict(self.sums)\n"
        "    def restore(self, state):\n        self.sums.update(state)\n"
    )
    code = TOTAL.replace(
        "def open(self):", "def open(self):\n        self.file = __import__('threading').Lock()"
    )
    site = Site(tmp_path / "state", code + own)
    first = texts(site.give(site.start(resume=False), 1, 4))
    calm = Site(tmp_path / "calm")
    assert first + texts(site.give(site.start(), 5, 2)) == texts(
        calm.give(calm.start(resume=False), 1, 6)
    )


def test_one_that_was_closed_gives_no_more(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    assert texts(site.give(site.start(resume=False), 1, 2, END_WATERMARK))[-1] == "over"
    assert texts(site.give(site.start(), 3, 0, END_WATERMARK)) == []


def test_one_half_of_a_state_is_refused() -> None:
    class Half(Pocket):
        query, output = "s", "t"

        def row(self, row: dict[str, object]) -> None: ...

        def snapshot(self) -> None: ...

    with pytest.raises(ConfigError, match="it defines snapshot, but not restore"):
        submission(Half, "", "half.py")
