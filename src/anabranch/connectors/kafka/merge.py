"""Merges the records of several partitions into one order that keeps their times together.

Partitions are read at different paces, most of all after a long pause. If they were merged as they
come, one would run ahead of the others and make their tuples late. So the records of a partition
are held until the others have got as far, or have no more. The time of a record is its timestamp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from anabranch.connectors.kafka.records import Record


class Merge:
    """Holds records until they may go. Pure."""

    def __init__(self) -> None:
        self._held: dict[int, deque[Record]] = {}

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._held.setdefault(record.partition(), deque()).append(record)

    def held(self, partition: int) -> int:
        return len(self._held.get(partition, ()))

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def take(self, behind: Iterable[int]) -> list[Record]:
        """The records that may go while more is to come from the partitions `behind`."""
        newest = [self._newest(partition) for partition in behind]
        limit = min(newest, default=None)
        taken: list[Record] = []
        for held in self._held.values():
            while held and (limit is None or _time(held[0]) <= limit):
                taken.append(held.popleft())
        return in_order(taken)

    def _newest(self, partition: int) -> float:
        held = self._held.get(partition)
        return max(map(_time, held)) if held else float("-inf")


def in_order(records: Iterable[Record]) -> list[Record]:
    """The records by time, with each partition's own order kept: no record comes before an earlier
    one of its partition. The order depends only on which records there are, not on how they came.
    """
    by_place = sorted(records, key=lambda record: (record.partition(), record.offset()))
    reached: dict[int, float] = {}
    keys: dict[int, tuple[float, int]] = {}
    for number, record in enumerate(by_place):
        partition = record.partition()
        reached[partition] = max(reached.get(partition, float("-inf")), _time(record))
        keys[number] = (reached[partition], partition)
    return [by_place[number] for number in sorted(keys, key=lambda number: keys[number])]


def _time(record: Record) -> float:
    kind, millis = record.timestamp()
    return millis if kind else float("-inf")
