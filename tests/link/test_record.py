"""What is kept of a stream for those who come later, by an outlet that may end at any time."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.errors import CannotResume, ConfigError
from anabranch.link.inlet import Budget
from anabranch.link.outlet import LiveOutlet
from anabranch.link.store import DiskBudget, KeptLog, Shelves
from anabranch.link.wire import ArrowBatches
from anabranch.log.spills import Spills
from anabranch.log.stream_log import StreamLog
from anabranch.plan.keep import Keep, Past
from anabranch.stream.restart import RestartPoint
from tests.link.support import BEAT_S, LOOP, SCHEMA, eventually, follow, numbers
from tests.link.test_store import LIMIT, MEMORY, ROWS, Disk, ack, give, is_idle, take

SEGMENT = 20_000
"""Bytes; a few appends."""
EVER = Keep(us=10**15)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


class Site:
    """Makes the outlet of one stream, again and again."""

    def __init__(self, disk: Disk, keep: Keep = EVER, total: int = 1_000_000_000) -> None:
        self.disk = disk
        self.keep = keep
        self.budget = DiskBudget(total)
        self.outlet = self._new()

    def _new(self) -> LiveOutlet:
        shelves = Shelves(Budget(LOOP, MEMORY), self.budget, Spills(self.disk, SEGMENT).new)
        log = StreamLog(self.disk, "S+kept", segment_bytes=SEGMENT)
        return LiveOutlet(
            LOOP,
            "S",
            ArrowBatches(SCHEMA),
            limit=LIMIT,
            heartbeat_s=BEAT_S,
            shelves=shelves,
            record=KeptLog(log, self.keep),
        )

    def again(self, after: int) -> LiveOutlet:
        """As after a restart, which goes on behind what was given up to there."""
        self.close()
        self.outlet = self._new()
        self.outlet.start_at(after)
        return self.outlet

    def close(self) -> None:
        self.outlet.close()
        LOOP.run(self.outlet.rest())

    @property
    def kept(self) -> int:
        """Bytes of its log on the disk."""
        names = [name for name in self.disk.names() if "+kept" in name]
        return sum(map(self.disk.size, names))


@pytest.fixture
def site(disk: Disk) -> Iterator[Site]:
    made = Site(disk)
    yield made
    made.close()


def find(outlet: LiveOutlet, past: Past) -> int:
    return LOOP.run(outlet.find(past))


def test_who_comes_later_has_all_that_was(site: Site) -> None:
    outlet = site.outlet
    give(outlet, 30 * ROWS)
    assert outlet.attach("late", after=find(outlet, Past())) == 0
    reader = follow(outlet, "late", 0)
    give(outlet, 10 * ROWS)
    assert take(reader, 40 * ROWS) == list(range(1, 40 * ROWS + 1))


def test_it_begins_with_the_first_tuple_of_a_time(site: Site) -> None:
    outlet = site.outlet
    give(outlet, 30 * ROWS)
    for time in (1, 2, ROWS, ROWS + 1, 12_345, 30 * ROWS, 30 * ROWS + 1):
        assert find(outlet, Past(since_us=time)) == time - 1
    eventually(is_idle(outlet))
    assert find(outlet, Past(back_us=500)) == 30 * ROWS - 501
    assert find(outlet, Past(back_us=10**9)) == 0


def test_the_producer_need_not_give_again_what_is_written(site: Site) -> None:
    outlet = site.outlet
    outlet.attach("slow", after=0)
    give(outlet, 30 * ROWS)
    eventually(lambda: outlet.settled == 30 * ROWS)
    again = site.again(30 * ROWS)
    assert again.attach("slow", after=0) == 0
    assert take(follow(again, "slow", 0), 30 * ROWS) == list(range(1, 30 * ROWS + 1))


def test_what_is_given_again_is_there_once(site: Site) -> None:
    give(site.outlet, 30 * ROWS)
    eventually(lambda: site.outlet.settled == 30 * ROWS)
    size = site.kept
    again = site.again(7 * ROWS + 3)
    again.attach("late", after=0)
    reader = follow(again, "late", 0)
    assert take(reader, 7 * ROWS + 3) == list(range(1, 7 * ROWS + 4))
    give(again, 10 * ROWS)
    assert take(reader, 17 * ROWS + 3) == list(range(7 * ROWS + 4, 17 * ROWS + 4))
    eventually(is_idle(again))
    assert site.kept == size
    give(again, 20 * ROWS)
    assert take(reader, 37 * ROWS + 3) == list(range(17 * ROWS + 4, 37 * ROWS + 4))
    eventually(lambda: again.settled == 37 * ROWS + 3)
    assert site.kept > size


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_killed_when_all_readers_have_all_once(disk: Disk, seed: int) -> None:
    """Restarts at random: the producer goes on somewhere between what it was told that it need not
    give again and what the readers have."""
    rng = random.Random(seed)
    site = Site(disk)
    got: dict[str, list[int]] = {"early": []}
    for _ in range(6):
        outlet = site.outlet
        if rng.random() < 0.5:
            got[f"late{len(got)}"] = []
        for name, had in got.items():
            outlet.attach(name, after=len(had))
        give(outlet, rng.randrange(1, 12 * ROWS))
        for name, had in got.items():
            upto = rng.randrange(len(had), outlet.last + 1)
            if upto > len(had):
                had += take(follow(outlet, name, len(had)), upto)
                ack(outlet, name, len(had))
            assert had == list(range(1, len(had) + 1)), name
        if rng.random() < 0.5:
            eventually(is_idle(outlet))
        site.again(rng.randrange(0, outlet.settled + 1))
        give(site.outlet, max(0, max(map(len, got.values())) - site.outlet.last))
    site.close()


def test_a_log_that_is_shorter_than_was_promised_is_refused(site: Site, disk: Disk) -> None:
    give(site.outlet, 30 * ROWS)
    eventually(lambda: site.outlet.settled == 30 * ROWS)
    site.close()
    disk.remove(max(name for name in disk.names() if "+kept" in name))
    with pytest.raises(CannotResume, match="after position 30000, but its log ends with"):
        site.again(30 * ROWS)


def test_keep_bounds_the_disk_and_says_from_when_on_there_is_something(disk: Disk) -> None:
    site = Site(disk, Keep(bytes=4 * SEGMENT))
    outlet = site.outlet
    for _ in range(20):
        give(outlet, 10 * ROWS)
        eventually(is_idle(outlet))
        assert site.kept == outlet.disk_bytes == site.budget.used <= 6 * SEGMENT
    with pytest.raises(ConfigError, match="it is kept from") as refused:
        find(outlet, Past())
    gone = outlet.released
    assert refused.value.remedy
    with pytest.raises(ConfigError):
        find(outlet, Past(since_us=gone))
    assert find(outlet, Past(since_us=gone + 1)) == gone > 0
    site.close()


def test_keep_goes_by_event_time(disk: Disk) -> None:
    site = Site(disk, Keep(us=20 * ROWS))
    give(site.outlet, 100 * ROWS)
    eventually(is_idle(site.outlet))
    assert 70 * ROWS <= site.outlet.released < 80 * ROWS
    site.close()


def test_a_reader_that_is_away_keeps_what_it_needs(disk: Disk) -> None:
    site = Site(disk, Keep(bytes=2 * SEGMENT))
    outlet = site.outlet
    outlet.attach("away", after=0)
    give(outlet, 60 * ROWS)
    eventually(is_idle(outlet))
    assert outlet.released == 0
    reader = follow(outlet, "away", 0)
    assert take(reader, 60 * ROWS) == list(range(1, 60 * ROWS + 1))
    outlet.level1("away", 60 * ROWS, RestartPoint((60 * ROWS,), 60 * ROWS))
    eventually(lambda: outlet.released > 40 * ROWS)
    site.close()


def test_a_full_disk_stops_the_source_or_lets_go_of_the_oldest(disk: Disk) -> None:
    site = Site(disk, total=5 * SEGMENT)
    with pytest.raises(AssertionError, match="there was no room"):
        fill(site.outlet)
    assert site.outlet.released == 0
    site.budget.lets_go = True
    site.outlet.look(30.0)
    give(site.outlet, 50 * ROWS)
    eventually(is_idle(site.outlet))
    assert 0 < site.outlet.released == site.budget.let_go
    assert site.kept < 7 * SEGMENT
    site.close()


def fill(outlet: LiveOutlet) -> None:
    """More than there is room for."""
    for _ in range(1_000):
        assert outlet.wait_for_room(threading.Event(), 0.5), "there was no room"
        outlet.append([numbers(outlet.last + 1, ROWS)], outlet.last)
