"""Malformed texts; `python -m bench fuzz` has more of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from bench.fuzz import experiment as module
from bench.fuzz.experiment import Outcome, fuzz
from bench.fuzz.texts import SCRIPTS, mutated

ROOT = Path(__file__).parents[2]


def test_five_thousand_texts(tmp_path: Path) -> None:
    """In a process of its own, whose memory nothing else fills."""
    code = (
        "from bench.fuzz.experiment import fuzz; import sys\n"
        "found = fuzz(1, 5000)\n"
        "print('\\n'.join(found.problems[:20]))\n"
        "sys.exit(bool(found.problems) or found.growth_mb > 200)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_of_every_kind_some_are_taken_and_some_refused() -> None:
    outcome = fuzz(1, 600)
    kinds = {"script", "CSV", "JSON lines", "cluster file"}
    assert set(outcome.refused) == kinds
    assert {"CSV", "JSON lines"} <= set(outcome.taken)
    assert outcome.problems == []


@pytest.mark.parametrize("seed", [28043, 28130, 37680, 83291, 89090])
def test_texts_that_once_went_wrong(seed: int) -> None:
    """Names of files and numbers of some hundred characters."""
    assert fuzz(seed, 1).problems == []


def test_a_seed_gives_the_same_text() -> None:
    assert mutated(Random(7), SCRIPTS) == mutated(Random(7), SCRIPTS)


@pytest.mark.parametrize(
    ("breaks", "limit", "problem"),
    [
        (lambda text, folder, chance: 1 / 0, "", "ZeroDivisionError: division by zero"),
        (lambda text, folder, chance: (folder / "mine.csv").write_text(""), "", "changed mine.csv"),
        (lambda text, folder, chance: time.sleep(50), "LONGEST_WAIT_S", "took longer than"),
        (
            lambda text, folder, chance: all(True for _ in iter(int, 1)),
            "LONGEST_S",
            "took longer than",
        ),
    ],
)
def test_what_it_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, breaks: module.Try, limit: str, problem: str
) -> None:
    monkeypatch.setattr(module, "_KINDS", {"script": (SCRIPTS, breaks)})
    if limit:
        monkeypatch.setattr(module, limit, 0.2)
    outcome = Outcome(1, 1)
    module._one(1, tmp_path, outcome)
    assert len(outcome.problems) == 1
    assert problem in outcome.problems[0]
