"""A file that is cut, rotated or written while it is read is not taken for one that ends there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.connectors.files import read_csv, read_json
from anabranch.errors import CannotResume, SourceError
from tests.connectors.reading import CheckedSource

COLUMNS = {"a": pa.int64()}
ROWS = 50


def lines(kind: str, count: int) -> list[str]:
    if kind == "csv":
        return ["a", *(str(10_000 + n) for n in range(count))]
    return [f'{{"a": {10_000 + n}}}' for n in range(count)]


@pytest.fixture(params=["csv", "jsonl"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(read_csv, "BLOCK_ROWS", 5)
    monkeypatch.setattr(read_json, "BLOCK_BYTES", 40)
    return str(request.param)


def reading(path: Path, change: Callable[[], None]) -> list[int]:
    """All of it; `change` is called after the first table."""
    source = CheckedSource("file", path.parent, {"path": path.name}, COLUMNS, None)
    found: list[int] = []
    for table, _ in source.connector.read_from(source.connector.start_cursor()):
        if not found:
            change()
        found += table.column("a").to_pylist()
    return found


def written(path: Path, kind: str, count: int = 20_000) -> None:
    path.write_text("\n".join(lines(kind, count)) + "\n")


def test_a_file_that_is_cut_is_not_at_its_end(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    written(path, kind)
    size = path.stat().st_size

    def cut() -> None:
        with path.open("r+b") as file:
            file.truncate(size - 3)

    with pytest.raises(SourceError) as caught:
        reading(path, cut)
    assert str(caught.value) == (
        f"{path}: the file had {size} bytes when it was opened and has {size - 3} now: it was cut"
        " or rotated while it was read. Files are read once and whole: move a complete file into"
        " place, and let programs that write on and on use Kafka."
    )


def test_one_that_is_moved_away_is_read_to_its_end(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    written(path, kind, 200)

    def rotate() -> None:
        path.rename(tmp_path / "old")
        written(path, kind, 3)

    assert reading(path, rotate) == [10_000 + n for n in range(200)]


def test_half_a_line_of_a_file_that_grows_is_no_row(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    written(path, kind)

    def grow() -> None:
        with path.open("a") as file:
            file.write(lines(kind, 2)[-1][:-1] if kind == "csv" else '{"a": 1')

    with pytest.raises(SourceError, match="is being written, and ends in the middle of a line"):
        reading(path, grow)


def test_a_last_line_without_a_break_is_a_row(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    path.write_text("\n".join(lines(kind, ROWS)))
    assert reading(path, lambda: None) == [10_000 + n for n in range(ROWS)]


def test_one_that_is_shorter_than_what_was_read_is_another(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    written(path, kind, ROWS)
    source = CheckedSource("file", tmp_path, {"path": path.name}, COLUMNS, None)
    cursors = [cursor for _, cursor in source.connector.read_from(source.connector.start_cursor())]
    written(path, kind, 2)
    again = CheckedSource("file", tmp_path, {"path": path.name}, COLUMNS, None)
    with pytest.raises(CannotResume, match=r"it was read up to byte \d+, and has \d+ bytes now"):
        list(again.connector.read_from(cursors[-1]))


def test_many_tables_are_read_again_in_one_reading(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    written(path, kind, ROWS)
    connector = CheckedSource("file", tmp_path, {"path": path.name}, COLUMNS, None).connector
    first = list(connector.read_from(connector.start_cursor()))
    assert len(first) > 3
    many = list(connector.reread_many(connector.start_cursor(), (end for _, end in first)))
    assert [table.to_pylist() for table, _ in many] == [table.to_pylist() for table, _ in first]
