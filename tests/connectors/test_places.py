"""Which paths mean the same files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.connectors.files.paths import below, read, written
from anabranch.plan.places import clash


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("in", "in/deep", "out"):
        (tmp_path / name).mkdir()
    for name in ("in/a.csv", "in/b.csv", "in/deep/c.csv", "out/d.csv"):
        (tmp_path / name).write_text("x\n1\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "in/a.csv")
    (tmp_path / "again").symlink_to(tmp_path / "in")
    os.link(tmp_path / "in/b.csv", tmp_path / "out/hard.csv")
    (tmp_path / "in/away.csv").symlink_to(tmp_path / "out/d.csv")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("in/a.csv", "in/a.csv"),
        ("in/a.csv", "in/../in/a.csv"),
        ("in/a.csv", "link.csv"),
        ("link.csv", "in/a.csv"),
        ("in/a.csv", "again/a.csv"),
        ("in/b.csv", "out/hard.csv"),
        ("in", "in/new.csv"),
        ("again", "in/new.csv"),
        ("in", "out/d.csv"),
        ("in/*.csv", "in/new.csv"),
        ("in/*.csv", "out/d.csv"),
        ("again/*.csv", "in/new.csv"),
        ("in/**/*.csv", "in/deep/new.csv"),
        ("*/a.csv", "in/a.csv"),
    ],
)
def test_a_sink_that_writes_what_a_source_reads(folder: Path, source: str, sink: str) -> None:
    assert clash(read(folder / source), written(folder / sink))
    assert clash(written(folder / sink), read(folder / source))


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("in/a.csv", "in/b.csv"),
        ("in/a.csv", "out/a.csv"),
        ("in", "in/deep/new.csv"),
        ("in", "in/.hidden.csv"),
        ("in/*.csv", "in/new.jsonl"),
        ("in/*.csv", "in/deep/new.csv"),
        ("in/a*.csv", "in/b2.csv"),
    ],
)
def test_a_sink_beside_what_a_source_reads(folder: Path, source: str, sink: str) -> None:
    assert not clash(read(folder / source), written(folder / sink))


@pytest.mark.parametrize(
    ("source", "sink", "clashes"),
    [
        ("in/a.csv", "in", True),
        ("in/a.csv", ".", True),
        ("in", "in", True),
        ("in/deep", "in", True),
        ("in", "in/deep", False),
        ("in", "out", True),  # it has a link that leads there
        ("out", "in", False),
        ("in/**/*.csv", "in/deep", True),
        ("in/*.csv", "in/deep", False),
        ("*/deep/*.csv", "in", True),
    ],
)
def test_a_sink_that_writes_a_folder(folder: Path, source: str, sink: str, clashes: bool) -> None:
    found = clash(read(folder / source), written(folder / sink, folder=True))
    assert bool(found) == clashes


def test_two_sinks(folder: Path) -> None:
    assert clash(written(folder / "x.csv"), written(folder / "x.csv"))
    assert clash(written(folder / "x", folder=True), written(folder / "x/y", folder=True))
    assert clash(written(folder / "x", folder=True), written(folder / "x/y.csv"))
    assert not clash(written(folder / "x.csv"), written(folder / "y.csv"))


def test_what_only_reads_meets_nothing(folder: Path) -> None:
    assert not clash(read(folder / "in/a.csv"), read(folder / "in/a.csv"))
    assert clash(below(folder / "in"), written(folder / "in/deep/new.csv"))


def test_another_machine(folder: Path) -> None:
    there = [one.model_copy(update={"machine": "another"}) for one in written(folder / "in/a.csv")]
    assert not clash(read(folder / "in/a.csv"), there)
