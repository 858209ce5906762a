"""Temporary folders that killed processes leave are removed by the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.scratch import OWNER, scratch_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    code = "import os, signal\nfrom anabranch.scratch import scratch_folder\n"
    code += "(scratch_folder('run-') / 'big').write_text('x'); os.kill(os.getpid(), 9)"
    environment = os.environ | {"TMPDIR": str(folder)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == -9
    (left,) = folder.glob("anabranch-run-*")
    assert (left / "big").exists()
    made = scratch_folder()
    assert list(folder.iterdir()) == [made]


def test_those_of_others_stay(folder: Path) -> None:
    """Of processes that run, and folders that do not say whose they are."""
    mine = scratch_folder()
    (folder / "anabranch-of-mine").mkdir()
    (folder / "anabranch-damaged").mkdir()
    (folder / "anabranch-damaged" / OWNER).write_text("nonsense")
    (folder / "another").mkdir()
    before = set(folder.iterdir())
    assert set(folder.iterdir()) - {scratch_folder()} == before
    assert mine in before


def test_a_number_that_was_given_anew_is_another_process(folder: Path) -> None:
    old = scratch_folder()
    (old / OWNER).write_text(f"{os.getpid()} 12345.0")
    scratch_folder()
    assert not old.exists()
