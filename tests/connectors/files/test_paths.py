from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.reading import CheckedSource, message

ONE = {"a": pa.int64()}


def source(tmp_path, timestamp=None, **options):
    return CheckedSource("file", tmp_path, options, ONE, timestamp)


def line(tmp_path, **options):
    return message(lambda: source(tmp_path, **options))


def values(tmp_path, **options):
    return [row["a"] for row in source(tmp_path, **options).rows()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name, value in [("b.csv", 2), ("a.csv", 1), ("c.csv", 3)]:
        (tmp_path / "in" / name).write_text(f"a\n{value}\n")
    (tmp_path / "in" / "_SUCCESS").write_text("")
    (tmp_path / "in" / ".d.csv").write_text("half")
    return tmp_path


def test_a_folder_and_a_pattern_are_read_in_name_order(folder):
    assert values(folder, path="in") == [1, 2, 3]
    assert values(folder, path="in/[bc].csv") == [2, 3]
    assert values(folder, path=f"{folder}/in/*.csv") == [1, 2, 3]


def test_suffixes(tmp_path):
    for name in ("x.jsonl", "x.JSON", "x.ndjson"):
        (tmp_path / name).write_text('{"a": 1}\n')
        assert values(tmp_path, path=name) == [1]
    (tmp_path / "x.log").write_text("a\n2\n")
    assert values(tmp_path, path="x.log", format="csv") == [2]
    assert line(tmp_path, path="x.log") == (
        "file() cannot tell the format of x.log. Add format = 'csv', 'json' or 'parquet'."
    )


def test_mixed_formats(folder):
    (folder / "in" / "x.json").write_text("")
    assert line(folder, path="in") == (
        "file() cannot read csv and json files as one stream. "
        "Choose with a pattern such as path = 'logs/*.csv'."
    )


def test_missing(tmp_path):
    assert line(tmp_path, path="x.csv") == (
        f"{tmp_path}/x.csv: no such file. Relative paths start at {tmp_path}."
    )
    assert line(tmp_path, path="/no/x.csv") == "/no/x.csv: no such file. Check the path."
    assert line(tmp_path, path="*.csv") == f"{tmp_path}/*.csv: no file matches. Check the path."
    assert line(tmp_path, path=".") == f"{tmp_path}: the folder holds no files. Check the path."


def test_options(tmp_path):
    assert line(tmp_path, pth="x.csv") == "file() has no option 'pth'. Did you mean 'path'?"
    assert line(tmp_path, path="x.csv", format="xml") == (
        "file() has format = 'xml'. Use 'csv', 'json' or 'parquet'."
    )
    assert line(tmp_path, path="x.csv", on_error="ignore") == (
        "file() has on_error = 'ignore'. Use 'fail' or 'skip'."
    )


@pytest.mark.parametrize(("written", "speed"), [("max", None), (2, 2.0), ("0.5", 0.5)])
def test_speed(folder, written, speed):
    assert source(folder, "a", path="in", speed=written).connector.speed == speed
    assert source(folder, path="in").connector.speed is None


@pytest.mark.parametrize("written", [0, -1, "fast", True, "nan", "inf"])
def test_wrong_speed(folder, written):
    assert line(folder, path="in", speed=written) == (
        f"file() has speed = {written!r}. Give 'max' or a number above 0."
    )


def test_speed_needs_event_time(folder):
    assert line(folder, path="in", speed=2).startswith(
        "file() has a speed, but the stream has no event time. Add TIMESTAMP"
    )


def test_a_file_that_cannot_be_read_is_told_before_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "in.csv").write_text("a\n1\n")

    def refuse(path, *mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    made = partial(CheckedSource, "file", tmp_path, {"path": "in.csv"}, {"a": pa.int64()})
    assert message(made) == f"{tmp_path}/in.csv: Permission denied"
