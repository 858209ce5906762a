"""Reads a Kafka topic as a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.connectors.formats.table_builder import ON_ERROR
from anabranch.connectors.kafka import reading as kafka_reading
from anabranch.connectors.kafka.client import SERVERS, TOPIC, Topic, client_settings
from anabranch.connectors.kafka.reading import TopicReading, read_range, read_ranges, watermarks
from anabranch.connectors.kafka.records import OF_THE_RECORD, KafkaRecord, RecordDecoder
from anabranch.connectors.options import BOOLEAN, TEXT, Option, split, take
from anabranch.connectors.source import Cursor, Source, SourceContext
from anabranch.errors import CannotResume, ConfigError, SourceAway, SourceError

LOOK_S = 10.0
"""How often we look whether the topic is there, and has more partitions now."""
AGAIN_S = 1.0
"""The same, while no broker answers."""


class KafkaSource(Source):
    """One record is one tuple. Partitions are merged by their records' timestamps, and each keeps
    its own order. A cursor is the next offset of each partition, `{"0": 17, "1": 4}`.
    """

    options: ClassVar[tuple[Option, ...]] = (
        SERVERS,
        TOPIC,
        Option("format", TEXT, "what a record's value is", "json", choices=("json", "csv")),
        Option(
            "event_time",
            TEXT,
            "'record' takes the record's timestamp; left out, TIMESTAMP decides",
            choices=("record",),
        ),
        Option("start", TEXT, "where reading begins", "earliest", choices=("earliest", "latest")),
        Option("once", BOOLEAN, "true reads what is there now and ends", default=False),
        ON_ERROR,
    )
    replayable = True
    partitioned = True
    others = "settings of the client, by librdkafka's names: `` `security.protocol` = 'SSL' ``"

    def __init__(self, context: SourceContext) -> None:
        known, passed = split(self.options, context.options)
        chosen = take("kafka", self.options, known)
        self._start: str = chosen["start"]
        self.finite: bool = chosen["once"]
        self.own_time = chosen["event_time"] == "record"
        self._stopped = context.stopped
        self._decoder, self._quiet_decoder = _decoders(context, chosen)
        group = {"group.id": f"anabranch-{context.stream}"}  # never joined, but required
        settings = client_settings(chosen["servers"], passed, [one.name for one in self.options])
        self._settings = kafka_reading.LIMITS | group | settings | kafka_reading.SETTINGS
        self._topic: Topic[SourceError] = Topic(
            chosen["servers"],
            chosen["topic"],
            self._settings,
            SourceError,
            SourceAway,
            CannotResume,
        )
        if not context.resume:  # else it is waited for when it is read
            self._topic.partitions(known=[option.name for option in self.options])

    def start_cursor(self) -> Cursor:
        which = 0 if self._start == "earliest" else 1
        marks = watermarks(self._topic, self._settings)
        return _cursor({number: ends[which] for number, ends in marks.items()})

    def read_from(self, cursor: Cursor) -> Iterator[tuple[pa.Table, Cursor]]:
        if (present := self._present()) is None:
            return
        goal = {number: high for number, (_, high) in present.items()}
        settings = self._settings | (kafka_reading.EAGER if self.finite else {})
        reading = TopicReading(self._topic, settings, self._offsets(cursor, present))
        looked = time.monotonic()
        try:
            while not self._stopped.is_set():
                records = reading.take()
                table = self._decoder.table(records)
                if table.num_rows:
                    yield table, _cursor(reading.offsets)
                if self.finite and reading.has_reached(goal):
                    return
                since = time.monotonic() - looked
                troubled = self.problem or self._topic.trouble_at > looked
                if since > (AGAIN_S if troubled else LOOK_S):
                    looked = time.monotonic()
                    reading.look(add=not self.finite)
                    self.problem = reading.problem
        finally:
            reading.close()

    def _present(self) -> dict[int, tuple[int, int]] | None:
        """The same as `watermarks`, as soon as a broker answers; None if the stream is stopped
        before.
        """
        while True:
            try:
                marks = watermarks(self._topic, self._settings)
            except SourceAway as away:
                self.problem = f"{away.place}: {away.message}"
                if self._stopped.wait(AGAIN_S):
                    return None
            else:
                self.problem = ""
                return marks

    def reread(self, begin: Cursor, end: Cursor) -> pa.Table:
        records = read_range(
            self._topic, self._settings, _numbered(begin), _numbered(end), self._stopped
        )
        return self._quiet_decoder.table(records)

    def reread_many(self, begin: Cursor, ends: Iterator[Cursor]) -> Iterator[tuple[pa.Table, int]]:
        """One consumer reads them, whatever the number of ends."""
        numbered = map(_numbered, ends)
        group: list[KafkaRecord] = []
        count = 0
        for records in read_ranges(
            self._topic, self._settings, _numbered(begin), numbered, self._stopped
        ):
            group += records
            count += 1
            if len(group) >= kafka_reading.BATCH:
                yield self._quiet_decoder.table(group), count
                group, count = [], 0
        if count:
            yield self._quiet_decoder.table(group), count

    def ends(self) -> dict[int, int]:
        """For each partition the offset after its last record, at present."""
        marks = watermarks(self._topic, self._settings)
        return {number: high for number, (_, high) in marks.items()}

    def _offsets(self, cursor: Cursor, present: dict[int, tuple[int, int]]) -> dict[int, int]:
        """The offsets of `cursor`; partitions that it does not know are new. If the topic ends
        before them, it is a new topic under the same name.
        """
        offsets = _numbered(cursor)
        for number, offset in sorted(offsets.items()):
            if number not in present:
                raise self._topic.lost("the partition is not there any more", number)
            if offset > present[number][1]:
                raise self._topic.lost(
                    f"it was read up to offset {offset}, and ends at {present[number][1]} now: the"
                    " topic is not the one that was read",
                    number,
                )
        return {number: offsets.get(number, 0) for number in present}


def _decoders(
    context: SourceContext, chosen: Mapping[str, Any]
) -> tuple[RecordDecoder, RecordDecoder]:
    """Two decoders: one counts what it leaves out, the other does not."""
    if chosen["event_time"] == "record":
        if context.timestamp:
            raise ConfigError(
                f"the stream takes its event time from {context.timestamp} and from the record",
                remedy="Leave out TIMESTAMP or event_time.",
            )
        context = replace(context, timestamp=OF_THE_RECORD)
    rest = chosen["topic"], chosen["format"], chosen["on_error"]
    quiet = replace(context, skipped=lambda rows: None)
    return RecordDecoder(context, *rest), RecordDecoder(quiet, *rest)


def _cursor(offsets: dict[int, int]) -> Cursor:
    return {str(number): offset for number, offset in sorted(offsets.items())}


def _numbered(cursor: Cursor) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in cursor.items()}
