"""Lines and records that are too long, and what is no file."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from anabranch.connectors import make_source
from anabranch.connectors.files import read_csv
from tests.connectors.reading import CheckedSource, context, message

TEXTS = {"a": pa.int64(), "s": pa.string()}
MB = 1_000_000


def source(folder: Path, content: bytes, name: str = "in.csv", **options: Any) -> CheckedSource:
    (folder / name).write_bytes(content)
    return CheckedSource("file", folder, {"path": name} | options, TEXTS)


@pytest.mark.parametrize("length", [131_073, 5 * MB])
def test_large_fields_are_taken(tmp_path: Path, length: int) -> None:
    """More than the csv module takes by itself."""
    (row,) = source(tmp_path, b"a,s\n1," + b"x" * length + b"\n").rows()
    assert row == {"a": 1, "s": "x" * length}
    text = json.dumps({"a": 1, "s": "x" * length}).encode()
    assert source(tmp_path, text, "in.jsonl").rows() == [row]


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl"])
def test_a_line_of_just_the_bound_is_taken(tmp_path: Path, name: str) -> None:
    short, long = (_lines(name, length) for length in (100, 101))
    assert len(source(tmp_path, short, name, max_line=100).rows()) == 3
    complaint = message(source(tmp_path, long, name, max_line=100).rows)
    line = 3 if name == "in.csv" else 2
    assert complaint == (
        f"{tmp_path}/{name}:{line}: the line is longer than 100 bytes, the bound that max_line"
        " sets. Fix the line or set on_error = 'skip'."
    )
    skipping = source(tmp_path, long, name, max_line=100, on_error="skip")
    assert [row["a"] for row in skipping.rows()] == [1, 3]
    assert skipping.skipped == [1]


def _lines(name: str, length: int) -> bytes:
    """The second of three rows has so many bytes, with its line break."""
    if name == "in.csv":
        return f"a,s\n1,x\n2,{'y' * (length - 3)}\n3,z\n".encode()
    around = len(json.dumps({"a": 2, "s": ""})) + 1
    texts = ["x", "y" * (length - around), "z"]
    rows = [json.dumps({"a": n, "s": text}) for n, text in enumerate(texts, 1)]
    return "\n".join([*rows, ""]).encode()


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    """Would else take in the rest of the file."""
    lines = "".join(f"{n},text {n}\n" for n in range(1000))
    found = source(tmp_path, f'a,s\n1,"open\n{lines}'.encode(), max_line="1kB", on_error="skip")
    rows = found.rows()
    assert found.skipped == [1]
    assert 900 < len(rows) < 1000
    assert rows[-1] == {"a": 999, "s": "text 999"}


def test_blocks_have_a_bound_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_csv, "BLOCK_BYTES", 10_000)
    text = "a,s\n" + "".join(f"{n},{'x' * 1000}\n" for n in range(100))
    tables = list(source(tmp_path, text.encode()).connector.read())
    assert sum(map(len, tables)) == 100
    assert max(map(len, tables)) == 10


@pytest.mark.parametrize("name", ["huge.csv", "huge.jsonl"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_gigabyte_without_a_line_break(tmp_path: Path, name: str, on_error: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"a,s\n" if name == "huge.csv" else b"")
    with file.open("r+b") as huge:
        huge.truncate(1 << 30)  # zeros that take no space
    made = CheckedSource("file", tmp_path, {"path": name, "on_error": on_error}, TEXTS)
    before = psutil.Process().memory_info().rss
    if on_error == "skip":
        assert made.rows() == []
        assert made.skipped == [1]
    else:
        assert "the line is longer than 16MB" in message(made.rows)
    assert psutil.Process().memory_info().rss - before < 200 * MB


@pytest.mark.parametrize("name", ["huge.csv", "huge.jsonl"])
def test_a_reader_stops_in_the_middle_of_a_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"a,s\n" if name == "huge.csv" else b"")
    with file.open("r+b") as huge:
        huge.truncate(1 << 40)  # which would take a quarter of an hour
    made = CheckedSource("file", tmp_path, {"path": name, "on_error": "skip"}, TEXTS)
    reading = threading.Thread(target=made.rows, daemon=True)
    reading.start()
    time.sleep(0.2)
    assert reading.is_alive()
    made.stopped.set()
    reading.join(30)
    assert not reading.is_alive()
    assert made.skipped == []


@pytest.mark.parametrize(
    ("path", "what"), [("/dev/zero", "a device"), ("pipe.csv", "a pipe"), ("/dev/null", "a device")]
)
def test_what_is_no_file_is_refused(tmp_path: Path, path: str, what: str) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    complaint = message(
        lambda: CheckedSource("file", tmp_path, {"path": path, "format": "csv"}, TEXTS)
    )
    assert f"this is {what}, which cannot be read again after a failure. Name a file" in complaint


def test_sizes_that_are_none(tmp_path: Path) -> None:
    for wrong in ("12", "0", 0, "3GB", True, "big"):
        options = {"path": "in.csv", "max_line": wrong}
        made = context(tmp_path, options, TEXTS)
        (tmp_path / "in.csv").write_text("a,s\n")
        assert message(lambda made=made: make_source("file", made)).startswith(
            "file() has max_line = "
        )
