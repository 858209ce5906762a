"""A query planned once, whose generated code runs on whatever Arrow comes; columns that it hands
on as they are do not go through the JVM.

What a query computes is sent there and comes back; the rest stays here. Where rows are left out,
their numbers make the way in the place of a column that nothing is computed of: those that come
back are the rows that are left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from anabranch.link.wire import apart
from anabranch.plan.expressions import quoted
from anabranch.spark.inside import convert_exception, from_arrow_schema, to_arrow_schema
from anabranch.spark.kept.handles import Channel
from anabranch.spark.kept.service import DONE, FAILED, ROWS, Service, empty_batch
from anabranch.spark.kept.stages import Build, Origins, Unfit, origins, sample, stages


@dataclass(frozen=True)
class CarriedColumns:
    """`outputs` maps places to the input columns that they are. `numbers` is the place in which row
    numbers come back; None if every row stays.
    """

    outputs: Mapping[int, str] = field(default_factory=dict)
    numbers: int | None = None

    @property
    def names(self) -> list[str]:
        """The input columns that are needed here."""
        return list(dict.fromkeys(self.outputs.values()))

    def travels(self, place: int) -> bool:
        return place not in self.outputs or place == self.numbers

    def rest(self, build: Build) -> Build:
        """`build` without the outputs that stay here."""
        return (lambda frame: _those(build(frame), self.travels)) if self.outputs else build

    def schema(self, sent: pa.Schema, output: pa.Schema) -> pa.Schema:
        """The schema of what `whole` gives: what comes back has the types that it was sent in."""
        back = iter(sent)
        fields = [next(back) if self.travels(i) else one for i, one in enumerate(output)]
        if self.numbers is not None:
            fields[self.numbers] = output.field(self.numbers)
        return pa.schema([f.with_name(o.name) for f, o in zip(fields, output, strict=True)])

    def numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` in the form in which it is sent."""
        if self.numbers is None:
            return batch
        at = batch.schema.get_field_index(self.outputs[self.numbers])
        return batch.set_column(at, batch.schema.field(at), pa.array(np.arange(batch.num_rows)))

    def whole(
        self, batch: pa.RecordBatch, back: pa.RecordBatch, schema: pa.Schema, nbytes: int = 0
    ) -> pa.RecordBatch:
        """All outputs, from what was sent and what came back. `batch` was cut from this many bytes,
        which the outputs must not keep in memory if they are much smaller.
        """
        columns = iter(back.columns)
        places = range(len(schema))
        found = {place: next(columns) for place in places if self.travels(place)}
        stayed = batch.select(self.names)
        if self.numbers is not None and back.num_rows < batch.num_rows:
            stayed = stayed.take(found[self.numbers])
        else:
            stayed = apart(stayed, nbytes)
        found |= {place: stayed.column(name) for place, name in self.outputs.items()}
        return pa.RecordBatch.from_arrays([found[place] for place in places], schema=schema)


def carried(origins: Origins | None, inputs: pa.Schema, outputs: pa.Schema) -> CarriedColumns:
    """The columns of a plan that need not travel."""
    if origins is None:
        return CarriedColumns()
    same = {
        place: name
        for place, name in enumerate(origins.outputs)
        if name is not None and inputs.field(name).type.equals(outputs.field(place).type)
    }
    if origins.keeps_rows:
        return CarriedColumns(same)
    numbers = (
        place
        for place, name in same.items()
        if name not in origins.read and inputs.field(name).type.equals(pa.int64())
    )
    first = next(numbers, None)
    return CarriedColumns() if first is None else CarriedColumns(same, first)


def used(origins: Origins | None, here: CarriedColumns, names: Sequence[str]) -> list[str]:
    """Those of the input columns `names` that are sent; at least one, which tells how many rows
    there are; all, for a plan that nothing is known of.
    """
    if origins is None:
        return list(names)
    handed_on = (name for place, name in enumerate(origins.outputs) if here.travels(place))
    wanted = {*origins.read, *filter(None, handed_on)}
    return [name for name in names if name in wanted] or list(names[:1])


def _those(frame: DataFrame, wanted: Callable[[int], bool]) -> DataFrame:
    """The columns at the places `wanted`. Two may have one name, so they get other names here."""
    names = [f"c{place}" for place in range(len(frame.columns))]
    kept = [col(name) for place, name in enumerate(names) if wanted(place)]
    return frame.toDF(*names).select(*kept)


_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class KeptPlan:
    """Gives what `build(spark.createDataFrame(table)).toArrow()` would, rows and errors.

    Raises Unfit if that needs a job. Called by one thread at a time."""

    def __init__(self, spark: SparkSession, schema: pa.Schema, build: Build) -> None:
        self._spark = spark
        source = sample(spark, schema)
        frame = build(source)
        self._output = to_arrow_schema(
            frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
        )
        found = origins(frame, schema.names)
        self._carried = carried(found, schema, self._output)
        self._used = used(found, self._carried, schema.names)
        self._needed = [n for n in schema.names if n in {*self._used, *self._carried.names}]
        if self._carried.outputs or len(self._used) < len(schema):
            source, frame = self._lean(schema, build)
        self._factories = stages(spark, frame)
        self._columns_in, self._columns_out = source._jdf.schema(), frame._jdf.schema()
        self._sent = empty_batch(spark, self._columns_out).schema
        self._whole = self._carried.schema(self._sent, self._output)
        self._connected: tuple[Channel, Service] | None = None

    def _lean(self, schema: pa.Schema, build: Build) -> tuple[DataFrame, DataFrame]:
        """The plan without the outputs that stay here, and without the inputs that only those
        need.
        """
        source = sample(self._spark, pa.schema([schema.field(name) for name in self._used]))
        try:
            return source, self._carried.rest(build)(_widened(source, schema))
        except AnalysisException as error:  # of a plan that the user has not written
            raise Unfit(f"Spark does not take a part of it ({error.getCondition()})") from None

    def __call__(self, table: pa.Table) -> pa.Table:
        pieces = _pieces(table.select(self._needed))
        each = table.nbytes / max(len(table), 1) if self._carried.outputs else 0.0
        found = [one for some in self._results(pieces, each) for one in some]
        given = pa.Table.from_batches(found, self._whole)
        return given if self._whole.equals(self._output) else given.cast(self._output)

    def _results(self, pieces: Sequence[pa.RecordBatch], each: float) -> list[list[pa.RecordBatch]]:
        """The results of each of `pieces`, a tuple of which was cut from `each` bytes. Meanwhile
        the JVM works on the next one.
        """
        if not self._sent.names:
            return [self._with_carried(piece, [], each) for piece in pieces]
        channel, service = self._connected = self._connected or self._connect()
        sent = [self._carried.numbered(piece.select(self._used)) for piece in pieces]
        try:
            with _sending(channel, sent):
                return [
                    self._with_carried(piece, list(self._answer(channel, service)), each)
                    for piece in pieces
                ]
        except BaseException:
            self.close()  # what is on its way belongs to nobody
            raise

    def _with_carried(
        self, piece: pa.RecordBatch, answer: list[pa.RecordBatch], each: float
    ) -> list[pa.RecordBatch]:
        if not self._carried.outputs:
            return answer
        back, nbytes = _joined(answer, self._sent), int(piece.num_rows * each)
        return [self._carried.whole(piece, back, self._whole, nbytes)]

    def _answer(self, channel: Channel, service: Service) -> Iterator[pa.RecordBatch]:
        while (size := channel.receive_number()) not in (DONE, FAILED):
            yield pa.ipc.read_record_batch(pa.py_buffer(channel.receive(size)), self._sent)
        if size == FAILED:
            raise convert_exception(service.failure())

    def _connect(self) -> tuple[Channel, Service]:
        jvm = self._spark._jvm
        assert jvm is not None
        channel = Channel(jvm)
        columns = self._columns_in, self._columns_out
        return channel, Service(self._spark, self._factories, *columns, channel.jvm_side)

    def interrupt(self) -> None:
        """Called from any thread: the running evaluation fails soon."""
        if connected := self._connected:
            connected[1].interrupt()

    def abandon(self) -> None:
        """Called from any thread, without asking the JVM: the running evaluation fails now,
        whatever the JVM goes on to do.
        """
        if connected := self._connected:
            channel, service = connected
            service.abandon()
            channel.shut()

    def close(self) -> None:
        if self._connected:
            channel, service = self._connected
            self._connected = None
            channel.close()
            service.close()


def _widened(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The frame with all columns of `schema`; those that it lacks are NULL, because nothing is
    computed from them.
    """
    there = set(frame.columns)
    if there == set(schema.names):
        return frame
    return frame.select(
        *(
            expr(quoted(one.name))
            if one.name in there
            else expr("NULL").cast(one.dataType).alias(one.name)
            for one in from_arrow_schema(schema)
        )
    )


@contextmanager
def _sending(channel: Channel, pieces: Sequence[pa.RecordBatch]) -> Iterator[None]:
    """Sends a request for each of `pieces`. The JVM reads a single one whole before it answers, so
    it can be sent at once; several are sent while answers are read.
    """
    if len(pieces) == 1:
        _send(channel, pieces)
        yield
        return
    sender = threading.Thread(target=_send_quietly, args=(channel, pieces), daemon=True)
    sender.start()
    try:
        yield
    except BaseException:
        channel.close()
        raise
    finally:
        sender.join()


def _send(channel: Channel, pieces: Sequence[pa.RecordBatch]) -> None:
    for piece in pieces:
        channel.send(piece.serialize(), _END_OF_STREAM)


def _send_quietly(channel: Channel, pieces: Sequence[pa.RecordBatch]) -> None:
    """Sends without raising: the reader of the answers sees that the connection has broken."""
    with suppress(OSError):
        _send(channel, pieces)


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


def _pieces(table: pa.Table) -> list[pa.RecordBatch]:
    """The pieces of the table, for as few requests as possible."""
    pieces: list[pa.RecordBatch] = table.to_batches(max_chunksize=ROWS)
    if len(pieces) > len(table) // ROWS + 1:
        pieces = table.combine_chunks().to_batches(max_chunksize=ROWS)
    return pieces
