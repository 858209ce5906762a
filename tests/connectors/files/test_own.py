"""What lies at a sink's path from before: replaced only if the query itself has written it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from anabranch.connectors import Sink
from anabranch.errors import ConfigError
from tests.connectors.writing import numbered
from tests.connectors.writing import sink as make

KINDS = ("csv", "jsonl", "parquet")


def sink(kind: str, folder: Path, query: str = "q", **options: Any) -> Sink:
    return make(kind, folder, query=query, path="out", **options)


def run(made: Sink) -> None:
    made.open()
    made.write(numbered(1, 3))
    made.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.fixture(params=["attributes", "files"])
def _marks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system with extended attributes, and on one without."""
    if request.param == "files":

        def refuse(*args: object) -> None:
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(os, "setxattr", refuse)
        monkeypatch.setattr(os, "getxattr", refuse)


@pytest.mark.usefixtures("_marks")
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_replaces_what_it_wrote_itself(tmp_path: Path, kind: str) -> None:
    run(sink(kind, tmp_path))
    before = contents(tmp_path)
    run(sink(kind, tmp_path))
    assert contents(tmp_path).keys() == before.keys()


@pytest.mark.usefixtures("_marks")
@pytest.mark.parametrize("kind", KINDS)
def test_another_query_does_not(tmp_path: Path, kind: str) -> None:
    run(sink(kind, tmp_path))
    before = contents(tmp_path)
    with pytest.raises(ConfigError) as caught:
        sink(kind, tmp_path, "r").open()
    assert caught.value.line() == (
        f"{kind}() has path = '{tmp_path}/out', where something is that query r has not written."
        " Choose another path, or add overwrite = true to replace what is there."
    )
    assert contents(tmp_path) == before
    run(sink(kind, tmp_path, "r", overwrite=True))
    run(sink(kind, tmp_path, "r"))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_users_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "out").write_text("precious")
    with pytest.raises(ConfigError, match="has not written"):
        sink(kind, tmp_path).open()
    assert (tmp_path / "out").read_text() == "precious"
    (tmp_path / "out").write_text("")  # nothing to lose
    run(sink(kind, tmp_path))


def test_a_users_parquet_files(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("stays")
    (tmp_path / "out/part-1.parquet").write_text("precious")
    with pytest.raises(ConfigError, match="has not written"):
        sink("parquet", tmp_path).open()
    (tmp_path / "out/part-1.parquet").unlink()
    run(sink("parquet", tmp_path))
    assert (tmp_path / "out/notes.txt").read_text() == "stays"
