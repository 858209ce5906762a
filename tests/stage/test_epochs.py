"""Checkpoints under random schedules and crashes: what is on disk is always one consistent cut."""

from __future__ import annotations

import random

import pytest

from anabranch.stage.offsets import Epochs, OffsetRange, Offsets

RANGES = [OffsetRange(name, at, at + 10) for name in "ab" for at in range(0, 200, 10)]


class Machine:
    """A state server that may crash, or be lost with its disk: memory, disk and global database are
    sets of ranges, by epoch; what is kept and saved are the offsets beside them."""

    def __init__(self) -> None:
        self.disk: dict[int, set[OffsetRange]] = {}
        self.kept: tuple[list[tuple[str, int, int, int]], int] = (
            Offsets({"a": 0, "b": 0}).rows(),
            0,
        )
        self.database: dict[int, set[OffsetRange]] = {}
        self.saved = self.kept
        self.start()

    def start(self) -> None:
        rows, flushed = self.kept
        self.epochs = Epochs(Offsets.of(rows), flushed)
        self.memory: dict[int, set[OffsetRange]] = {}
        self.running: list[tuple[int, OffsetRange]] = []

    def step(self, draw: random.Random) -> None:
        match draw.choice(
            ["begin", "begin", "end", "end", "abort", "barrier", "flush", "save", "crash", "lose"]
        ):
            case "begin":
                range = draw.choice(RANGES)
                if not self.epochs.offsets.has(range):
                    epoch = self.epochs.enter(range)
                    assert (epoch is None) == any(one == range for _, one in self.running)
                    if epoch is not None:
                        self.running.append((epoch, range))
            case "end" if self.running:
                epoch, range = self.running.pop(draw.randrange(len(self.running)))
                self.memory.setdefault(epoch, set()).add(range)
                self.epochs.commit(epoch, range, range.end)
            case "abort" if self.running:
                self.epochs.abort(*self.running.pop(draw.randrange(len(self.running))))
            case "barrier":
                frozen = self.epochs.frozen is not None
                assert self.epochs.barrier() != frozen
            case "flush" if (epoch := self.epochs.whole) is not None:
                assert self.epochs.frozen is not None
                self.disk[epoch] = self.memory.pop(epoch, set())
                self.kept = self.epochs.frozen.rows(), epoch
                self.epochs.flush_done()
            case "save":
                behind = self.saved[1]
                self.database |= {
                    epoch: part for epoch, part in self.disk.items() if epoch > behind
                }
                self.saved = self.kept
            case "crash" if draw.random() < 0.2:
                self.start()
            case "lose" if draw.random() < 0.1:
                self.disk, self.kept = dict(self.database), self.saved
                self.start()
        self.check()

    def check(self) -> None:
        for parts, (rows, _) in ((self.disk, self.kept), (self.database, self.saved)):
            there = [range for part in parts.values() for range in part]
            assert len(there) == len(set(there)), "a range is in twice"
            offsets = Offsets.of(rows)
            assert {one for one in RANGES if offsets.has(one)} == set(there)
        now = set[OffsetRange]().union(*self.disk.values(), *self.memory.values())
        assert {one for one in RANGES if self.epochs.offsets.has(one)} == now


@pytest.mark.parametrize("seed", range(60))
def test_any_schedule_keeps_each_range_once(seed: int) -> None:
    draw, machine = random.Random(seed), Machine()
    for _ in range(400):
        machine.step(draw)


def test_a_flush_waits_for_the_transactions_of_its_epoch() -> None:
    epochs = Epochs(Offsets({"a": 0}))
    first, second = OffsetRange("a", 0, 10), OffsetRange("a", 10, 20)
    early = epochs.enter(first)
    assert early == 1
    assert epochs.barrier()
    late = epochs.enter(second)
    assert late == 2
    epochs.commit(late, second, 20)
    assert epochs.whole is None
    epochs.commit(early, first, 10)
    assert epochs.whole == 1
    assert epochs.frozen is not None
    assert epochs.frozen.upto() == {"a": 10}
    assert epochs.offsets.upto() == {"a": 20}
