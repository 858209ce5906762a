"""Turns records of a Kafka topic into tables of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from anabranch.connectors.formats.csv_rows import csv_block
from anabranch.connectors.formats.from_text import from_text
from anabranch.connectors.formats.from_values import from_values
from anabranch.connectors.formats.json_rows import json_block, json_parser
from anabranch.connectors.formats.table_builder import Convert, TableBuilder, source_names
from anabranch.connectors.source import SourceContext

OF_THE_RECORD = "of the record"
"""Stands where the name of an event-time field would, also in messages."""
_REMEDY = "Set on_error = 'skip' to leave such records out."


class Record(Protocol):
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

    def table(self, records: Sequence[Record]) -> pa.Table:
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

    def _place(self, record: Record) -> str:
        return f"topic {self._topic}, partition {record.partition()}, offset {record.offset()}"


def _micros(record: Record) -> int | None:
    kind, millis = record.timestamp()
    return millis * 1000 if kind else None


def _csv_order(context: SourceContext) -> list[int]:
    """Where each of `source_names` stands in a line: the declared columns in their order, and after
    them the event time if it is not among them.
    """
    names = [name.lower() for name in source_names(context)]
    return [names.index(name) for name in names]
