"""The project's own files agree with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def plain(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9_.-]+", name)[0]).lower()


def test_constraints_are_plain_pins():
    assert [line for line in PINS if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []


def test_everything_needed_is_pinned():
    pinned = {plain(line.partition("==")[0]) for line in PINS}
    extras = PROJECT["optional-dependencies"].values()
    needed = PROJECT["dependencies"] + [name for extra in extras for name in extra]
    assert {plain(name) for name in needed} - pinned == {"anabranch"}


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_make_alone_lists_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE)
    listed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"^  make (\S+) ", listed, re.MULTILINE) == targets


@pytest.mark.parametrize("name", ["jdk", "python", "servers"])
def test_scripts_can_be_run(name):
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "scripts" / f"ensure-{name}.sh", os.X_OK)


def test_hooks_come_from_here_alone():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}
