"""One planning of a query, its connection, and the thread in the JVM that answers there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.spark.kept.channel import Channel
from anabranch.spark.kept.service import DONE, FAILED, Service, empty_batch
from anabranch.spark.kept.stages import Build, sample, stages, used

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Lane:
    """Answers one request after the other. Lanes of one query share nothing: Spark's expressions
    may keep a value while they are evaluated (the argument of a lambda), as each of its tasks has
    its own. Raises Unfit if the query needs a job."""

    def __init__(self, spark: SparkSession, schema: pa.Schema, build: Build) -> None:
        self._spark = spark
        source, frame = _planned(spark, schema, build)
        self.used = used(frame, schema.names)
        if len(self.used) < len(schema):
            schema = pa.schema([schema.field(name) for name in self.used])
            source, frame = _planned(spark, schema, build)
        self._factories = stages(spark, frame)
        self._columns_in, self._columns_out = source._jdf.schema(), frame._jdf.schema()
        self.sent = empty_batch(spark, self._columns_out).schema
        """As results come from the JVM."""
        self.output = to_arrow_schema(
            frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
        )
        """As a job would give them."""
        self._connected: tuple[Channel, Service] | None = None
        self._sender: threading.Thread | None = None

    def request(self, pieces: Sequence[pa.RecordBatch]) -> None:
        """Have them evaluated. One alone the JVM reads whole before it answers, so it can be sent
        at once; several are sent while answers are read."""
        channel, _ = self._connected = self._connected or self._connect()
        if len(pieces) == 1:
            _send(channel, pieces)
            return
        self._sender = threading.Thread(target=_quietly, args=(channel, pieces), daemon=True)
        self._sender.start()

    def answer(self) -> Iterator[pa.RecordBatch]:
        """The results of the next piece that was sent. Raises what Spark raised."""
        assert self._connected
        channel, service = self._connected
        while (size := channel.receive_number()) not in (DONE, FAILED):
            yield pa.ipc.read_record_batch(pa.py_buffer(channel.receive(size)), self.sent)
        if size == FAILED:
            raise convert_exception(service.failure())

    def settle(self) -> None:
        """All has been answered, or the lane is closed."""
        if self._sender:
            self._sender.join()
            self._sender = None

    def _connect(self) -> tuple[Channel, Service]:
        jvm = self._spark._jvm
        assert jvm is not None
        channel = Channel(jvm)
        columns = self._columns_in, self._columns_out
        return channel, Service(self._spark, self._factories, *columns, channel.jvm_side)

    def interrupt(self) -> None:
        """From any thread: what is being evaluated fails soon."""
        if connected := self._connected:
            connected[1].interrupt()

    def close(self) -> None:
        """The next request makes a new connection."""
        if self._connected:
            channel, service = self._connected
            self._connected = None
            channel.close()
            service.close()


def _planned(spark: SparkSession, schema: pa.Schema, build: Build) -> tuple[DataFrame, DataFrame]:
    source = sample(spark, schema)
    return source, build(source)


def _send(channel: Channel, pieces: Sequence[pa.RecordBatch]) -> None:
    for piece in pieces:
        channel.send(piece.serialize(), _END_OF_STREAM)


def _quietly(channel: Channel, pieces: Sequence[pa.RecordBatch]) -> None:
    """Whoever reads the answers sees that the connection has broken."""
    with suppress(OSError):
        _send(channel, pieces)
