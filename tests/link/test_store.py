"""What memory does not hold of a stream lies on the disk: readers are slow, away, or stand by."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.disk.real import RealFolder
from anabranch.errors import CannotResume, Gap, SiteError, StorageError
from anabranch.link.inlet import Budget
from anabranch.link.outlet import LiveOutlet
from anabranch.link.store import DiskBudget, OutletStore, Shelves
from anabranch.link.wire import ArrowBatches
from anabranch.log.spills import Spills
from anabranch.stream.batch import Batch
from anabranch.stream.restart import RestartPoint
from tests.link.support import BEAT_S, LOOP, SCHEMA, eventually, follow, numbers, ship, values

ROW_BYTES = numbers(1, 1).nbytes
ROWS = 1_000
"""Of one append."""
MEMORY = 8 * ROWS * ROW_BYTES
LIMIT = 4 * ROWS * ROW_BYTES
AHEAD = 10 * ROWS
"""More than that is not sent to a reader that takes one batch."""


class Disk(RealFolder):
    """Appends wait while it is `slow`, and fail while it is `full`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.full = False
        self.slow = threading.Event()
        self.slow.set()

    def append_to(self, name: str, size: int):  # type: ignore[no-untyped-def]
        file = super().append_to(name, size)
        whole = file.append

        def append(data: bytes) -> None:
            self.slow.wait(30)
            if self.full:
                raise StorageError("No space left on device")
            whole(data)

        file.append = append  # type: ignore[method-assign]
        return file

    @property
    def bytes(self) -> int:
        return sum(self.size(name) for name in self.names())


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def budget() -> DiskBudget:
    return DiskBudget(1_000_000_000)


@pytest.fixture
def outlet(disk: Disk, budget: DiskBudget) -> Iterator[LiveOutlet]:
    shelves = Shelves(Budget(LOOP, MEMORY), budget, Spills(disk, 20_000).new)
    outlet = an_outlet(shelves)
    yield outlet
    outlet.close()


def an_outlet(shelves: Shelves, limit: int = LIMIT) -> LiveOutlet:
    return LiveOutlet(
        LOOP, "S", ArrowBatches(SCHEMA), limit=limit, heartbeat_s=BEAT_S, shelves=shelves
    )


def give(outlet: LiveOutlet, count: int) -> None:
    """So many tuples, each append as soon as there is room."""
    while count:
        assert outlet.wait_for_room(threading.Event(), 20), "there was no room"
        rows = min(ROWS, count)
        outlet.append([numbers(outlet.last + 1, rows)], outlet.last + rows)
        count -= rows


def fill(outlet: LiveOutlet) -> None:
    """Until there is no room."""
    while outlet.wait_for_room(threading.Event(), 0.3):
        outlet.append([numbers(outlet.last + 1, ROWS)], outlet.last)


def ack(outlet: LiveOutlet, consumer: str, position: int, needs: int | None = None) -> None:
    point = position if needs is None else needs
    outlet.level0(consumer, position, 0)
    outlet.level1(consumer, point, RestartPoint((point,), point))


def take(stream: Iterator[Batch[pa.RecordBatch]], upto: int) -> list[int]:
    """All values up to that one, which is the last of a batch."""
    got: list[int] = []
    while not got or got[-1] < upto:
        got += values([next(stream)])
    return got


def in_memory(outlet: LiveOutlet) -> int:
    return outlet._outlet.memory_bytes


def is_idle(outlet: LiveOutlet) -> Callable[[], bool]:
    return lambda: not outlet._store._busy


class Reading:
    """Takes all, in a thread of its own, and needs what `needs` says of the last it has taken."""

    def __init__(
        self, outlet: LiveOutlet, name: str, needs: Callable[[int], int] = lambda last: last
    ) -> None:
        self.got: list[int] = []
        self._outlet = outlet
        self._name = name
        self._needs = needs
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for batch in follow(self._outlet, self._name, 0):
            self.got += values([batch])
            ack(self._outlet, self._name, len(self.got), self._needs(len(self.got)))

    def has(self, upto: int) -> None:
        eventually(lambda: len(self.got) >= upto)
        assert self.got == list(range(1, upto + 1))


def test_what_open_windows_need_is_not_in_memory_and_given_again_from_the_disk(
    outlet: LiveOutlet, disk: Disk, budget: DiskBudget
) -> None:
    outlet.attach("windows")
    reading = Reading(outlet, "windows", needs=lambda last: 0)
    give(outlet, 100_000)
    reading.has(100_000)
    eventually(is_idle(outlet))
    assert outlet.kept() == (100_000, 100_000 * ROW_BYTES)
    assert in_memory(outlet) <= MEMORY
    assert outlet.disk_bytes == disk.bytes == budget.used > 0
    assert take(follow(outlet, "windows", 0), 100_000) == list(range(1, 100_001))
    assert take(follow(outlet, "windows", 54_321), 100_000) == list(range(54_322, 100_001))
    before = disk.bytes
    ack(outlet, "windows", 100_000, needs=70_500)
    eventually(lambda: disk.bytes < before / 2)
    assert take(follow(outlet, "windows", 70_500), 100_000) == list(range(70_501, 100_001))
    with pytest.raises(Gap):
        next(follow(outlet, "windows", 70_000))
    ack(outlet, "windows", 100_000)
    eventually(lambda: disk.names() == [] and not budget.used)
    assert outlet.kept() == (0, 0)


def test_one_that_takes_nothing_holds_up_nobody_and_gets_all_later(
    outlet: LiveOutlet, disk: Disk, budget: DiskBudget
) -> None:
    outlet.attach("slow")
    outlet.attach("quick")
    slow, quick = follow(outlet, "slow", 0), Reading(outlet, "quick")
    outlet.append([numbers(1, ROWS)], ROWS)
    got = take(slow, ROWS)
    give(outlet, 100_000)
    quick.has(outlet.last)
    eventually(is_idle(outlet))
    assert in_memory(outlet) <= MEMORY
    got += take(slow, outlet.last)
    assert got == list(range(1, outlet.last + 1))
    ack(outlet, "slow", outlet.last)
    eventually(lambda: outlet.kept() == (0, 0))
    eventually(lambda: disk.names() == [])


def test_the_quickest_of_those_that_follow_is_waited_for(outlet: LiveOutlet) -> None:
    outlet.attach("slow")
    outlet.attach("quick")
    slow, quick = follow(outlet, "slow", 0), follow(outlet, "quick", 0)
    outlet.append([numbers(1, ROWS)], ROWS)
    next(slow), next(quick)
    fill(outlet)
    assert outlet.last <= AHEAD
    take(quick, outlet.last)
    assert outlet.wait_for_room(threading.Event(), 5)


def test_while_nobody_follows_nobody_is_waited_for_unless_there_is_no_reason_to_go_on(
    outlet: LiveOutlet,
) -> None:
    outlet.attach("away")
    give(outlet, 50 * ROWS)
    outlet.waits_for_absent = True
    assert not outlet.wait_for_room(threading.Event(), 0.3)
    stream = follow(outlet, "away", 0)
    assert take(stream, 50 * ROWS) == list(range(1, 50 * ROWS + 1))
    assert outlet.wait_for_room(threading.Event(), 5)


def test_one_that_is_not_heard_of_is_not_waited_for(
    outlet: LiveOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection may hang for as long as TCP likes."""
    outlet.attach("cut off")
    stream = follow(outlet, "cut off", 0)
    outlet.append([numbers(1, ROWS)], ROWS)
    next(stream)
    fill(outlet)
    assert outlet.last <= AHEAD
    monkeypatch.setattr("anabranch.link.serving.AWAY_S", 0.0)
    give(outlet, 50 * ROWS)
    monkeypatch.undo()
    ack(outlet, "cut off", ROWS)
    assert not outlet.room()


def test_when_the_budget_is_used_up_the_slowest_is_waited_for(
    outlet: LiveOutlet, disk: Disk, budget: DiskBudget
) -> None:
    budget.total = 300_000
    outlet.attach("slow")
    outlet.attach("quick")
    quick = Reading(outlet, "quick")
    while outlet.wait_for_room(threading.Event(), 1.0):
        give(outlet, ROWS)
        quick.has(outlet.last)
    assert budget.total <= disk.bytes < budget.total + 100_000
    assert in_memory(outlet) < 2 * MEMORY
    slow = follow(outlet, "slow", 0)
    assert take(slow, outlet.last) == list(range(1, outlet.last + 1))
    ack(outlet, "slow", outlet.last)
    give(outlet, 10 * ROWS)


def test_a_producer_does_not_outrun_the_disk(outlet: LiveOutlet, disk: Disk) -> None:
    outlet.attach("away")
    disk.slow.clear()
    fill(outlet)
    assert in_memory(outlet) <= 2 * MEMORY + ROWS * ROW_BYTES
    disk.slow.set()
    give(outlet, 50 * ROWS)
    assert take(follow(outlet, "away", 0), outlet.last) == list(range(1, outlet.last + 1))


def test_a_full_disk_makes_the_source_wait_and_goes_on_when_there_is_room(
    outlet: LiveOutlet, disk: Disk
) -> None:
    outlet.attach("away")
    disk.full = True
    fill(outlet)
    assert any("spilling of S" in str(one) for one in LOOP.troubles.report(LOOP.now()))
    assert in_memory(outlet) <= 2 * MEMORY + ROWS * ROW_BYTES
    disk.full = False
    give(outlet, 50 * ROWS)
    eventually(is_idle(outlet))
    assert take(follow(outlet, "away", 0), outlet.last) == list(range(1, outlet.last + 1))


def test_what_was_written_though_its_writer_failed_is_not_written_again(
    outlet: LiveOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a thread fails after it has done what it was asked for."""
    whole, failures = OutletStore._write, iter([True, False, True, True, False])

    def write(*args: Any) -> None:
        whole(*args)
        if next(failures, False):
            raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(OutletStore, "_write", write)
    outlet.attach("away")
    give(outlet, 100 * ROWS)
    eventually(is_idle(outlet))
    assert next(failures, None) is None
    assert take(follow(outlet, "away", 0), outlet.last) == list(range(1, outlet.last + 1))


def test_a_standby_that_comes_late_is_shipped_what_is_on_the_disk(outlet: LiveOutlet) -> None:
    outlet.attach("c")
    give(outlet, 100 * ROWS)
    shipped = ship(outlet, "c", 0, epoch=1, batch=7_000)
    got = values(itertools.islice((one for one in shipped if one.rows), 2))
    assert got == list(range(1, 98_001))
    outlet.level1("c", 50_000, RestartPoint((50_000,), 20))
    again = ship(outlet, "c", 0, epoch=2, batch=10_000)
    batch = next(one for one in again if one.rows)
    assert (batch.first, batch.rows, batch.point) == (50_001, 50_000, RestartPoint((50_000,), 20))


def test_an_outlet_that_begins_anew_has_nothing_left(
    outlet: LiveOutlet, disk: Disk, budget: DiskBudget
) -> None:
    outlet.attach("c")
    give(outlet, 100 * ROWS)
    outlet.start_at(5)
    eventually(lambda: disk.names() == [] and not budget.used)
    outlet.append([numbers(6, 60 * ROWS)], 6)
    outlet.append([numbers(60 * ROWS + 6, ROWS)], 6)
    assert take(follow(outlet, "c", 5), outlet.last) == list(range(6, outlet.last + 1))


def test_one_that_is_closed_leaves_nothing_and_tells_readers_to_look_elsewhere(
    outlet: LiveOutlet, disk: Disk, budget: DiskBudget
) -> None:
    outlet.attach("c")
    give(outlet, 100 * ROWS)
    stream = follow(outlet, "c", 0)
    next(stream)
    outlet.close()
    assert all(batch.rows for batch in stream)
    with pytest.raises(SiteError):
        LOOP.run(outlet._store.read(0))
    eventually(lambda: disk.names() == [] and not budget.used)
    assert not outlet._store._shelves.memory.used


def test_one_that_is_closed_while_its_disk_is_read_passes_for_closed(outlet: LiveOutlet) -> None:
    """And not for damaged, which would make its readers fail."""
    outlet.attach("c")
    fill(outlet)
    eventually(is_idle(outlet))

    def read(*asked: Any) -> None:
        outlet.close()
        raise CannotResume("its files are gone")

    outlet._store._read = read  # type: ignore[method-assign,assignment]
    with pytest.raises(SiteError, match="is not given here any more"):
        LOOP.run(outlet._store.read(0))


def test_what_another_process_has_spilled_is_removed(disk: Disk, budget: DiskBudget) -> None:
    shelves = Shelves(Budget(LOOP, MEMORY), budget, Spills(disk).new)
    outlet = an_outlet(shelves)
    outlet.attach("c")
    give(outlet, 100 * ROWS)
    eventually(is_idle(outlet))
    (disk.path / "S.journal.00000001").write_bytes(b"another's")
    assert len(disk.names()) == 2
    Spills(disk)
    assert disk.names() == ["S.journal.00000001"]


def test_what_is_damaged_on_the_disk_is_not_passed_over(outlet: LiveOutlet, disk: Disk) -> None:
    outlet.attach("c")
    give(outlet, 100 * ROWS)
    eventually(is_idle(outlet))
    name = disk.names()[1]
    data = bytearray(disk.path.joinpath(name).read_bytes())
    data[len(data) // 2] ^= 1
    disk.path.joinpath(name).write_bytes(data)
    with pytest.raises(CannotResume, match=rf"{name}: the record at byte \d+ is damaged"):
        take(follow(outlet, "c", 0), outlet.last)


def test_many_readers_at_different_places_while_tuples_come(outlet: LiveOutlet) -> None:
    """Each sees every tuple once and in order, wherever it is read from."""
    names = [f"r{n}" for n in range(4)]
    for name in names:
        outlet.attach(name)
    got: dict[str, list[int]] = {}
    total = 150_000

    def read(number: int, name: str) -> None:
        seen: list[int] = []
        while len(seen) < total:
            for batch in follow(outlet, name, len(seen)):
                seen += values([batch])
                time.sleep(0.001 * number if batch.rows else 0)
                ack(outlet, name, len(seen), needs=max(0, len(seen) - 2_000 * number))
                if len(seen) >= total or (batch.rows and batch.last % 17_000 < 900):
                    break  # and follow anew
        got[name] = seen

    threads = [threading.Thread(target=read, args=(n, name)) for n, name in enumerate(names)]
    for one in threads:
        one.start()
    give(outlet, total)
    for one in threads:
        one.join(60)
    assert [got.get(name) == list(range(1, total + 1)) for name in names] == [True] * 4
