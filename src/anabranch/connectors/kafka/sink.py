"""Results as records of a Kafka topic, each table in one transaction.

Every record names its query and position in its headers. So a query that goes on after a failure
finds in the topic itself what it has written. Two instances never write at once: the id of the
transactions belongs to the query and topic, and whoever opens last fences off the one before.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from anabranch.connectors.files.csv_sink import csv_rows
from anabranch.connectors.files.json_text import json_column, json_objects
from anabranch.connectors.kafka import reading as kafka_reading
from anabranch.connectors.kafka.client import (
    SERVERS,
    TOPIC,
    Topic,
    client_settings,
    make_client,
)
from anabranch.connectors.kafka.tail import last_position, marks
from anabranch.connectors.options import TEXT, Option, split, take, unknown
from anabranch.connectors.sink import ANEW, Beginning, SinkContext
from anabranch.errors import SinkError

PATIENCE_S = 30.0
"""How long a transaction may take to begin or to be committed while no broker answers."""
_TRY_S = 5.0
_PIECE_ROWS = 10_000
_FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
# Where Java's producers put a key, so that records of both meet.
_DEFAULTS = {"partitioner": "murmur2_random", "linger.ms": 5}


class KafkaSink:
    """A JSON value has the query's columns, then `_pos` and `_ts`; a CSV value the same, by place.
    A record's timestamp is its event time, in ms."""

    options: ClassVar[tuple[Option, ...]] = (
        SERVERS,
        TOPIC,
        Option("format", TEXT, "what a record's value is", "json", choices=("json", "csv")),
        Option("key", TEXT, "a column whose value is the record's key; none if left out"),
    )
    others = "settings of the client, by librdkafka's names: `` `security.protocol` = 'SSL' ``"

    def __init__(self, context: SinkContext) -> None:
        known, passed = split(self.options, context.options)
        chosen = take("kafka", self.options, known)
        self._key = _column(chosen["key"], context)
        self._encode = json_objects if chosen["format"] == "json" else csv_rows
        self._query, self._run, self._resume = context.query, context.run, context.resume
        client = client_settings(chosen["servers"], passed, [one.name for one in self.options])
        identity = {"transactional.id": f"anabranch-{context.query}-{chosen['topic']}"}
        self._settings = _DEFAULTS | identity | client
        names = [option.name for option in self.options]
        make_client(Producer, self._settings, names)
        group = {"group.id": f"anabranch-{context.query}"}  # never joined, but required
        self._reader = group | client | kafka_reading.SETTINGS
        self._topic = Topic(chosen["servers"], chosen["topic"], self._reader, SinkError)
        self._topic.partitions()
        self._producer: Producer | None = None

    def open(self, begin: Beginning = ANEW) -> None:
        """Nothing can be taken out of a topic: records of an earlier run stay."""
        self.close()
        self._producer = make_client(Producer, self._settings, ())
        self._persist(self._producer.init_transactions)

    def written(self) -> int:
        if not self._resume:  # what is there is an earlier run's, whose positions are not ours
            return 0
        return last_position(self._topic, self._reader, self._query, self._run)

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        producer = self._producer
        if producer is None:
            raise self._topic.failed("the sink is not open")
        try:
            producer.begin_transaction()
            for record in self._records(table):
                _produce(producer, self._topic.name, record)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        self._persist(producer.commit_transaction)

    def close(self) -> None:
        """Every write is complete in itself; an unfinished one leaves nothing."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)

    def _records(self, table: pa.Table) -> Iterator[dict[str, Any]]:
        for batch in table.to_batches(_PIECE_ROWS):
            values = self._encode(batch).to_pylist()
            keys = [None] * len(values) if self._key is None else _keys(batch[self._key])
            times = batch["_ts"].to_pylist()
            positions = batch["_pos"].to_pylist()
            for value, key, micros, position in zip(values, keys, times, positions, strict=True):
                yield {
                    "value": value,
                    "key": key,
                    # 0 would mean now, and there is no time before 1970 in Kafka.
                    "timestamp": max(micros // 1000, 1),
                    "headers": marks(self._query, self._run, position),
                }

    def _persist(self, call: Callable[[float], None]) -> None:
        """Until it has worked; SinkError after PATIENCE_S or when it cannot work."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call(_TRY_S)
                return
            except KafkaException as error:
                reason = error.args[0]
                if not reason.retriable() or time.monotonic() > deadline:
                    raise self._failed(reason) from error

    def _failed(self, reason: KafkaError) -> SinkError:
        """What to raise, once nothing of the transaction is left."""
        if self._producer is not None:
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(_TRY_S)
        if reason.code() in _FENCED:
            return self._topic.failed(
                f"another instance of the query {self._query} has begun to write here",
                "Only the newest may; this one stops.",
            )
        if reason.retriable():
            return self._topic.failed(
                f"no broker took the tuples within {PATIENCE_S:g} s: {reason.str()}",
                "Start the query again when Kafka is back.",
            )
        return self._topic.failed(reason.str())


def _produce(producer: Producer, topic: str, record: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, **record)
            return
        except BufferError:
            producer.poll(0.1)


def _column(name: str | None, context: SinkContext) -> str | None:
    """As the query has it, whatever the case it was written in."""
    if name is None:
        return None
    columns = {column.lower(): column for column in context.schema.names[:-2]}
    if name.lower() not in columns:
        raise unknown(f"kafka() has key = {name!r}, which is no column", name, columns.values())
    return columns[name.lower()]


def _keys(column: pa.Array) -> list[Any]:
    """Text and bytes as they are, any other value as JSON."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return list(column.to_pylist())
    texts = json_column(column).to_pylist()
    return [text if valid else None for text, valid in zip(texts, column.is_valid(), strict=True)]
