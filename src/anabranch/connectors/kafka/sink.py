"""Results as records of a Kafka topic, each table in one transaction.

Every record names its query, run and position in its headers, and about once a second a transaction
notes at the broker how far it is. So a query that goes on after a failure finds what it has
written. Two instances never write at once: the id of the transactions belongs to the query and
topic, and the last to open fences off the one before, if it has the right to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from anabranch.connectors.formats.texts import csv_rows, json_column, json_objects
from anabranch.connectors.kafka.client import SERVERS, TOPIC, passes
from anabranch.connectors.kafka.place import BrokerPlace, ResultNotes, TopicPlace
from anabranch.connectors.kafka.written import Noted, marks
from anabranch.connectors.options import TEXT, Option, split, take, unknown
from anabranch.connectors.sink import (
    ANEW,
    Beginning,
    Sink,
    SinkContext,
    behind,
    check_right,
    fenced,
)
from anabranch.errors import SinkAway, SinkError
from anabranch.runtime.loop import REAL_TIME, ThreadTime

T = TypeVar("T")
PATIENCE_S = 10.0
"""How long a transaction may take to begin or to be committed while no broker answers."""
_TRY_S = 5.0
_PAUSE_S = 0.2
_PIECE_ROWS = 10_000
NOTE_S = 1.0
"""How often a transaction says at the broker how far it is: it takes two questions more. What was
written since the last note is found by reading the topic from there."""
_FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
)
_NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""A broker that has just begun to answer for groups."""
_USED_UP = (KafkaError._STATE, KafkaError._INCONSISTENT)
"""A producer whose transaction cannot go on: another one begins again."""
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class KafkaSink(Sink):
    """A JSON value has the query's columns, then `_pos` and `_ts`; a CSV value the same, by place.
    A record's timestamp is its event time, in ms."""

    options: ClassVar[tuple[Option, ...]] = (
        SERVERS,
        TOPIC,
        Option("format", TEXT, "what a record's value is", "json", choices=("json", "csv")),
        Option("key", TEXT, "a column whose value is the record's key; none if left out"),
    )
    resumable = True
    shared = True
    others = "settings of the client, by librdkafka's names: `` `security.protocol` = 'SSL' ``"

    def __init__(
        self, context: SinkContext, place: TopicPlace | None = None, time: ThreadTime = REAL_TIME
    ) -> None:
        """`place` replaces the topic that the options name."""
        known, passed = split(self.options, context.options)
        chosen = take("kafka", self.options, known)
        self._key = _column(chosen["key"], context)
        self._encode = json_objects if chosen["format"] == "json" else csv_rows
        self._query, self._run, self._resume = context.query, context.run, context.resume
        names = [option.name for option in self.options]
        self._place = place or BrokerPlace(
            chosen["servers"], chosen["topic"], context.query, passed, names
        )
        self._topic = self._place.topic
        self._time = time
        self._begin = ANEW
        self._writer: Writer | None = None
        self._held: Noted | None = None
        """What we have written, once we have begun."""
        try:
            self._place.check()
        except SinkAway:
            if not self._resume:  # what goes on waits for the broker when it is opened
                raise

    def open(self, begin: Beginning = ANEW) -> None:
        """Opens the sink. Records of an earlier run stay, because nothing can be taken out of a
        topic.
        """
        self.close()
        self._begin, self._held = begin, None
        self._start()

    def _start(self) -> None:
        """Takes over: from now on we write, and no earlier writer does. Raises what `open` raises,
        and SinkBehind if the topic has lost what we wrote.
        """
        with self._reported(), contextlib.ExitStack() as undo:
            notes = self._place.notes()
            undo.callback(notes.close)
            self._check_right(self._persist(notes.read))  # whoever has no right fences off nobody
            producer = self._place.producer()
            undo.callback(_discard, producer)
            self._persist(producer.init_transactions)
            noted = self._persist(notes.read)
            self._check_right(noted)
            held = Noted(
                self._run,
                self._begin.epoch,
                noted.holder + 1 if noted else 1,
                self._position(noted),
                self._place.ends(),
            )
            if self._held and held.position < self._held.position:
                raise behind(held.position, self._held.position, f"topic {self._topic.name}")
            producer.begin_transaction()
            notes.send(producer, held, _TRY_S)
            self._persist(producer.commit_transaction)
            self._held = held
            self._writer = Writer(producer, notes, self._time.monotonic(), dict(held.offsets))
            undo.pop_all()

    def _check_right(self, noted: Noted | None) -> None:
        resume = self._resume or self._held is not None
        check_right(self._query, self._run, self._begin.epoch, noted, resume=resume)
        if self._held and noted and noted.holder > self._held.holder:
            same = noted.run == self._run and noted.epoch == self._begin.epoch
            if same:
                raise fenced(self._query, "another writes now", f"topic {self._topic.name}")

    def _position(self, noted: Noted | None) -> int:
        """The last position that is written. If the topic's retention has deleted records, the
        acknowledged position counts.
        """
        if not self._resume and self._held is None:
            return 0  # what is there is an earlier run's, whose positions are not ours
        tail = self._place.tail(self._run)
        if noted and noted.run == self._run:
            last, whole = tail.behind(noted.offsets)
            position = max(noted.position, last)
        else:
            position, whole = tail.last_position()
        return self._begin.goes_on_after(position) if whole else max(position, self._begin.after)

    def written(self) -> int:
        if self._held is None:
            raise self._topic.failed("the sink is not open")
        return self._held.position

    def write(self, table: pa.Table) -> None:
        """Writes the rows that are not there yet: an earlier attempt may have been committed though
        its answer was lost.
        """
        if self._held is None:
            raise self._topic.failed("the sink is not open")
        if self._writer is None:
            self._start()
        assert self._writer
        positions = table.column("_pos").to_numpy()
        table = table.slice(int(np.searchsorted(positions, self._held.position, side="right")))
        if not table.num_rows:
            return
        try:
            self._transact(self._writer, table, replace(self._held, position=int(positions[-1])))
        except KafkaException as error:
            failure = self._failed(error.args[0])
            if error.args[0].code() in _FENCED:
                self._start()  # Fenced, if whoever did that has the right to write
            raise failure from error

    def _transact(self, writer: Writer, table: pa.Table, held: Noted) -> None:
        writer.producer.begin_transaction()
        for record in self._records(table):
            _produce(writer.producer, self._topic.name, record | {"on_delivery": writer.delivered})
        if due := self._time.monotonic() - writer.noted_at > NOTE_S:
            writer.notes.send(writer.producer, replace(held, offsets=writer.offsets), _TRY_S)
        self._persist(writer.producer.commit_transaction)
        self._held = held
        writer.committed()
        if due:
            writer.noted_at = self._time.monotonic()

    def close(self) -> None:
        """Closes the sink. Every write is complete in itself, and an unfinished one leaves nothing.
        Never raises, even if the producer was fenced off or its broker is away.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

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

    def _persist(self, call: Callable[[float], T]) -> T:
        """Repeats `call` until it works and returns its result; raises KafkaException after
        PATIENCE_S, or when it cannot work.
        """
        deadline = self._time.monotonic() + PATIENCE_S
        while True:
            try:
                return call(_TRY_S)
            except KafkaException as error:
                reason = error.args[0]
                unready = reason.code() in _NO_COORDINATOR
                late = self._time.monotonic() > deadline
                if late or not (reason.retriable() or unready):
                    raise
                if unready:
                    self._time.sleep(_PAUSE_S)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turns errors of Kafka into ours. After an error that may go away, or one that makes the
        producer useless, the next call begins with a new producer.
        """
        try:
            yield
        except KafkaException as error:
            raise self._failed(error.args[0]) from error

    def _failed(self, reason: KafkaError) -> SinkError:
        """The error to raise, once the transaction is undone."""
        writer = self._writer
        refused = writer.refused if writer else None
        if reason.code() in _FENCED:
            failure = self._topic.passing("another instance has begun to write here")
        elif refused is None and _is_passing(reason):
            failure = self._topic.passing(f"no broker took the tuples: {reason.str()}")
        else:
            reason = refused or reason
            failure = self._topic.failed(reason.str(), _remedy(reason, self._place.group))
            if writer and _aborted(writer.producer):
                writer.refused = None
                return failure
        self.close()
        return failure


class Writer:
    """A producer, and where its records lie."""

    def __init__(
        self, producer: Producer, notes: ResultNotes, noted_at: float, offsets: dict[int, int]
    ) -> None:
        self.producer = producer
        self.notes = notes
        self.noted_at = noted_at
        self.offsets = offsets
        """Partition → from where on there may be records that are not committed yet."""
        self.refused: KafkaError | None = None
        """Why a record was not taken, if it would be refused again."""
        self._delivered: dict[int, int] = {}

    def delivered(self, error: KafkaError | None, record: Any) -> None:
        if error is None:
            self._delivered[record.partition()] = record.offset() + 1
        elif not _is_passing(error) and error.code() not in _PURGED:
            self.refused = error

    def committed(self) -> None:
        self.offsets |= self._delivered
        self._delivered = {}

    def close(self) -> None:
        _discard(self.producer)
        self.notes.close()


def _is_passing(reason: KafkaError) -> bool:
    return passes(reason) or reason.fatal() or reason.code() in _USED_UP


def _aborted(producer: Producer) -> bool:
    """Aborts the transaction. Returns whether the producer can go on with another one."""
    try:
        producer.abort_transaction(_TRY_S)
    except KafkaException:
        return False
    return True


def _discard(producer: Producer) -> None:
    with contextlib.suppress(KafkaException):
        producer.purge()
        producer.flush(0)


def _remedy(reason: KafkaError, group: str) -> str:
    if reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return f"Allow the user to READ the group {group}, where it notes how far it is."
    return ""


def _produce(producer: Producer, topic: str, record: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(topic, **record)
            return
        except BufferError:
            producer.poll(0.1)


def _column(name: str | None, context: SinkContext) -> str | None:
    """The column's name as the query has it, in whatever case it was written."""
    if name is None:
        return None
    columns = {column.lower(): column for column in context.schema.names[:-2]}
    if name.lower() not in columns:
        raise unknown(f"kafka() has key = {name!r}, which is no column", name, columns.values())
    return str(columns[name.lower()])


def _keys(column: pa.Array) -> list[Any]:
    """The keys: text and bytes as they are, any other value as JSON."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return list(column.to_pylist())
    texts = json_column(column).to_pylist()
    return [text if valid else None for text, valid in zip(texts, column.is_valid(), strict=True)]
