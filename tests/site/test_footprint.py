"""The memory of a process and its JVM: real processes, and made-up sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch.site.footprint import Footprint, taken_by


class Process:
    """What it takes, and the time, are what one says."""

    def __init__(self) -> None:
        self.size, self.time, self.looks = 300, 0.0, 0
        self.footprint = Footprint(self._taken, lambda: self.time)

    def _taken(self) -> int:
        self.looks += 1
        return self.size

    def excess(self, size: int, after_s: float = 1.0) -> int:
        self.size = size
        self.time += after_s
        return self.footprint.excess()


def test_a_cold_process_never_takes_too_much() -> None:
    assert Process().excess(10**12) == 0


def test_a_warm_one_should_take_no_more_than_its_heap_in_addition() -> None:
    process = Process()
    process.footprint.warm(heap_bytes=500)
    assert process.excess(800) == 0
    assert process.excess(830) == 30


def test_the_most_it_took_counts() -> None:
    process = Process()
    process.footprint.warm(heap_bytes=500)
    assert process.excess(1800) == 1000
    assert process.excess(400) == pytest.approx(1000, rel=0.01)
    assert process.excess(1900) == 1100


def test_a_moment_long_ago_is_forgotten() -> None:
    process = Process()
    process.footprint.warm(heap_bytes=500)
    process.excess(1800)
    assert process.excess(400, after_s=600) == 500
    assert process.excess(400, after_s=6000) == 0


def test_another_jvm_is_another_beginning() -> None:
    process = Process()
    process.footprint.warm(heap_bytes=500)
    process.excess(1000)
    process.footprint.warm(heap_bytes=2000)
    assert process.excess(2900) == 0
    assert process.excess(3010) == 10


def test_it_looks_no_more_than_ten_times_a_second() -> None:
    process = Process()
    process.footprint.warm(heap_bytes=0)
    for _ in range(100):
        process.excess(300, after_s=0.01)
    assert process.looks <= 12


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
