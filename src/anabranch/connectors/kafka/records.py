"""Turns records of a Kafka topic into tables of a stream; the records of several partitions come in
one order that keeps their times together.

Partitions are read at different paces, most of all after a long pause. If they were merged as they
come, one would run ahead of the others and make their tuples late. So the records of a partition
are held until the others have got as far, or have no more. The time of a record is its timestamp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from anabranch.connectors.formats.columns import from_text, from_values
from anabranch.connectors.formats.rows import csv_block, json_block, json_parser
from anabranch.connectors.formats.table_builder import Convert, TableBuilder, source_names
from anabranch.connectors.source import SourceContext

OF_THE_RECORD = "of the record"
"""Stands where the name of an event-time field would, also in messages."""
_REMEDY = "Set on_error = 'skip' to leave such records out."


class KafkaRecord(Protocol):
    """The part of confluent_kafka.Message that we need."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class RecordDecoder:
    """One record is one row; a record without a value is none."""

    def __init__(self, context: SourceContext, topic: str, format: str, on_error: str) -> None:
        """The event time is the record's own if `context.timestamp` is OF_THE_RECORD."""
        self._topic = topic
        self._record_time = context.timestamp == OF_THE_RECORD
        inside = replace(context, timestamp=None) if self._record_time else context
        self._names = source_names(inside)
        self._is_csv = format == "csv"
        self._order = _csv_order(inside)
        self._parse = json_parser(context.schema)
        convert: Convert = from_text if self._is_csv else partial(from_values, base64_text=True)
        self._builder = TableBuilder(context, on_error, convert, _REMEDY)

    def table(self, records: Sequence[KafkaRecord]) -> pa.Table:
        """The well-formed rows in the order of `records`; where malformed ones are to fail,
        SourceError names the first."""
        texts = [
            (number, value)
            for number, record in enumerate(records)
            if (value := record.value()) is not None
        ]
        if self._is_csv:
            block = csv_block(texts, self._order, "record")
        else:
            block = json_block(texts, self._names, self._parse, "record")
        if self._record_time:
            times = [_micros(records[number]) for number in block.numbers]
            block.columns = [*block.columns, self._as_raw(times)]
        return self._builder.build(block, lambda number: self._place(records[number]))

    def _as_raw(self, times: list[int | None]) -> list[int | None] | list[str]:
        return ["" if time is None else str(time) for time in times] if self._is_csv else times

    def _place(self, record: KafkaRecord) -> str:
        return f"topic {self._topic}, partition {record.partition()}, offset {record.offset()}"


def _micros(record: KafkaRecord) -> int | None:
    kind, millis = record.timestamp()
    return millis * 1000 if kind else None


def _csv_order(context: SourceContext) -> list[int]:
    """Where each of `source_names` stands in a line: the declared columns in their order, and after
    them the event time if it is not among them.
    """
    names = [name.lower() for name in source_names(context)]
    return [names.index(name) for name in names]


class Merge:
    """Holds records until they may go. Pure."""

    def __init__(self) -> None:
        self._held: dict[int, deque[KafkaRecord]] = {}

    def add(self, records: Iterable[KafkaRecord]) -> None:
        for record in records:
            self._held.setdefault(record.partition(), deque()).append(record)

    def held(self, partition: int) -> int:
        return len(self._held.get(partition, ()))

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def take(self, behind: Iterable[int]) -> list[KafkaRecord]:
        """The records that may go while more is to come from the partitions `behind`."""
        newest = [self._newest(partition) for partition in behind]
        limit = min(newest, default=None)
        taken: list[KafkaRecord] = []
        for held in self._held.values():
            while held and (limit is None or _time(held[0]) <= limit):
                taken.append(held.popleft())
        return in_order(taken)

    def _newest(self, partition: int) -> float:
        held = self._held.get(partition)
        return max(map(_time, held)) if held else float("-inf")


def in_order(records: Iterable[KafkaRecord]) -> list[KafkaRecord]:
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


def _time(record: KafkaRecord) -> float:
    kind, millis = record.timestamp()
    return millis if kind else float("-inf")
