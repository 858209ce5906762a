"""Pockets are told how far their input has come, and when it has ended."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.errors import ConfigError
from anabranch.plan.program import Program
from anabranch.pocket import Pocket
from anabranch.site.programs.pocket import PocketBody
from anabranch.site.programs.submission import submission
from anabranch.site.tasks.body import Taken
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
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
    program = Program(code=code, path="/nowhere/counts.py", class_name="Counts", **changes)  # type: ignore[arg-type]
    made = PocketBody(None, "Counts", program, COLUMNS, OUTPUT)  # type: ignore[arg-type]
    made.open()
    return made


def given(made: PocketBody, first: int, count: int, watermark: int) -> list[tuple[str, int]]:
    """The texts and event times that come of so many tuples and this watermark."""
    batches = [batch(first, count)] if count else []
    table = made.step([Taken(batches, first + count - 1, watermark)]).table
    return list(zip(table["text"].to_pylist(), table["_ts"].to_pylist(), strict=True))


def test_it_is_told_of_the_watermark_and_of_the_end() -> None:
    made = body()
    assert given(made, 1, 3, START_WATERMARK) == []
    assert given(made, 4, 2, 50) == [("5 up to 50", 50)]
    assert given(made, 6, 0, 50) == []
    assert given(made, 6, 0, 70) == [("5 up to 70", 70)]
    (last,) = given(made, 6, 1, END_WATERMARK)
    assert last[0] == "6 in all"
    assert last[1] >= 70
    made.close()  # what it has given at the end is not given again


def test_the_end_of_an_input_without_tuples() -> None:
    assert given(body(), 1, 0, END_WATERMARK) == [("0 in all", 0)]


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


def test_what_depends_on_the_watermark_is_not_deterministic() -> None:
    class Both(Pocket):
        query, output, deterministic = "s", "t", True

        def row(self, row: dict[str, object]) -> None: ...

        def watermark(self, time: int) -> None: ...

    with pytest.raises(ConfigError, match="it is told of the watermark, which moves by chance"):
        submission(Both, "", "both.py")
