"""The memory of a process and its JVM: real processes, and made-up sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch.site import footprint as module
from anabranch.site.footprint import Footprint, taken_by


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the process takes is the last of these, and looked at each time."""
    monkeypatch.setattr(module, "_FRESH_S", 0.0)
    return [300]


def test_a_cold_process_never_takes_too_much(sizes: list[int]) -> None:
    footprint = Footprint(lambda: sizes[-1])
    sizes.append(10**12)
    assert footprint.excess() == 0


def test_a_warm_one_should_take_no_more_than_its_heap_in_addition(sizes: list[int]) -> None:
    footprint = Footprint(lambda: sizes[-1])
    footprint.warm(heap_bytes=500)
    sizes.append(800)
    assert footprint.excess() == 0
    sizes.append(830)
    assert footprint.excess() == 30


def test_the_most_it_ever_took_counts(sizes: list[int]) -> None:
    footprint = Footprint(lambda: sizes[-1])
    footprint.warm(heap_bytes=500)
    sizes.append(830)
    footprint.excess()
    sizes.append(400)
    assert footprint.excess() == 30
    sizes.append(840)
    assert footprint.excess() == 40


def test_warm_is_what_it_was_at_first(sizes: list[int]) -> None:
    footprint = Footprint(lambda: sizes[-1])
    footprint.warm(heap_bytes=500)
    sizes.append(1000)
    footprint.warm(heap_bytes=500)
    assert footprint.excess() == 200


def test_it_looks_no_more_than_ten_times_a_second() -> None:
    looks = []
    footprint = Footprint(lambda: looks.append(None) or len(looks))  # type: ignore[func-returns-value]
    footprint.warm(heap_bytes=0)
    assert [footprint.excess() for _ in range(1000)][:3] == [1, 1, 1]
    assert len(looks) < 100


def test_memory_counts_and_pages_of_files_do_not(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "file", np.uint8, "w+", shape=50_000_000)
    before = taken_by(os.getpid())
    mapped.sum()
    assert taken_by(os.getpid()) - before < 20_000_000
    kept = np.ones(50_000_000, np.uint8)
    assert taken_by(os.getpid()) - before > 40_000_000
    assert kept.any()


def test_another_process_counts_until_it_has_ended() -> None:
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout
        child.stdout.readline()
        assert taken_by(child.pid) > 1_000_000
        both = taken_by(os.getpid(), child.pid)
        assert both > taken_by(os.getpid()) > 0
    finally:
        child.communicate(b"\n")
    assert taken_by(child.pid) == 0
