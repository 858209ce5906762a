"""Reads any streaming source of Spark."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, StringType, StructField, StructType

from anabranch.connectors.files.paths import below
from anabranch.connectors.formats.columns import from_arrow
from anabranch.connectors.formats.table_builder import MAX_ROWS, Block, TableBuilder, source_names
from anabranch.connectors.options import BOOLEAN, DURATION, TEXT, Option, split, take
from anabranch.connectors.source import Source, SourceContext
from anabranch.connectors.spark.options import check_spark_options, local_path, with_absolute_path
from anabranch.errors import ConfigError, SourceError
from anabranch.plan.places import Place
from anabranch.scratch import scratch_folder
from anabranch.spark.failures import SPARK_ERRORS, cause
from anabranch.spark.inside import from_arrow_type

TEXT_FORMATS = {"csv", "json", "xml"}
FILE_FORMATS = TEXT_FORMATS | {"parquet", "orc", "avro"}
"""They take the declared schema; other sources have one of their own."""
_WAITING = 8
"""Tables between Spark and read(); more wait inside Spark, which then makes larger batches."""
_POLL = 0.1


class SparkSource(Source):
    """Structured Streaming brings the tuples, a query per read. Columns are taken by name and cast
    to the declared types. All options but these go to Spark's reader; a relative `path` starts at
    the script's folder."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("format", TEXT, "a streaming source of Spark: 'csv', 'rate', …", required=True),
        Option("once", BOOLEAN, "true reads what is there now and ends", default=False),
        Option("trigger", DURATION, "pause between two micro-batches", default=100_000),
    )
    others = "options of Spark's reader"

    def __init__(self, context: SourceContext) -> None:
        known, passed = split(self.options, context.options)
        chosen = take("spark", self.options, known)
        if "on_error" in passed:
            raise ConfigError(
                "spark() has no option 'on_error'",
                remedy="Use the format's own, such as mode = 'FAILFAST' or 'DROPMALFORMED'.",
            )
        self._context = context
        self._format: str = chosen["format"]
        self._trigger_us: int = chosen["trigger"]
        self.finite: bool = chosen["once"]
        check_spark_options(context.spark(), self._format, passed, self.options)
        self._passed = with_absolute_path(passed, context.base)
        remedy = f"Check what {self._format} gives, or leave such rows out with its own options."
        self._builder = TableBuilder(context, "fail", from_arrow, remedy)
        self._frame()

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        path = local_path(options, base)
        return below(path) if path else []

    def read(self) -> Iterator[pa.Table]:
        handover = Handover(self._context.stopped, f"spark({self._format})")
        folder = scratch_folder()
        query = None
        try:
            query = self._begin(handover, str(folder / "checkpoint"))
            for number, table in handover.tables(query):
                yield self._convert(number, table)
        finally:
            handover.closed.set()
            if query is not None:
                query.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _begin(self, handover: Handover, checkpoint: str) -> StreamingQuery:
        writer = self._frame().writeStream.foreachBatch(handover.put)
        writer = writer.option("checkpointLocation", checkpoint)
        if self.finite:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._trigger_us // 1000} milliseconds")
        try:
            return writer.start()
        except SPARK_ERRORS as error:
            raise SourceError(cause(error), place=f"spark({self._format})") from error

    def _convert(self, number: int, table: pa.Table) -> pa.Table:
        block = Block(table.columns, range(1, len(table) + 1))
        where = f"spark({self._format}), batch {number}"
        return self._builder.build(block, lambda row: f"{where}, row {row}")

    def _frame(self) -> DataFrame:
        """The stream with the declared columns, then event time as the source has it."""
        try:
            reader = self._context.spark().readStream.format(self._format)
            if self._format.lower() in FILE_FORMATS:
                reader = reader.schema(self._schema())
            frame = reader.options(**self._passed).load()
            columns = [_column(f.name).cast(from_arrow_type(f.type)) for f in self._context.schema]
            if self._context.timestamp:
                columns.append(_column(self._context.timestamp).alias("_event_time"))
            return frame.select(*columns)
        except SPARK_ERRORS as error:
            raise ConfigError(
                cause(error),
                place=f"spark({self._format})",
                remedy="Check the format, its options and the declared columns.",
            ) from error

    def _schema(self) -> StructType:
        types: dict[str, DataType] = {
            field.name: from_arrow_type(field.type) for field in self._context.schema
        }
        declared = {name.lower() for name in types}
        for name in source_names(self._context):
            if name.lower() not in declared:
                types[name] = self._time_type(name)
        return StructType([StructField(name, type) for name, type in types.items()])

    def _time_type(self, name: str) -> DataType:
        """The type of an event time that is not declared: text is parsed here, for other formats
        the files say it.
        """
        if self._format.lower() in TEXT_FORMATS:
            return StringType()
        files = self._context.spark().read.format(self._format).options(**self._passed).load()
        return files.select(_column(name)).schema[0].dataType


def _column(name: str) -> Any:
    return functions.col("`" + name.replace("`", "``") + "`")


class Handover:
    """Hands batches over from Spark's thread, which puts, to the reader's thread, which takes."""

    def __init__(self, stopped: threading.Event, place: str) -> None:
        self.closed = threading.Event()
        self._stopped = stopped
        self._failure = ""
        self._place = place
        self._waiting: queue.Queue[tuple[int, pa.Table]] = queue.Queue(_WAITING)

    def put(self, batch: DataFrame, number: int) -> None:
        """Returns once all of `batch` is handed over, or nobody wants it any more."""
        try:
            table = batch.toArrow()
        except SPARK_ERRORS as error:
            # Kept instead of raised: Spark would bury it in its own stack traces.
            self._failure = self._failure or cause(error)
            return
        for first in range(0, table.num_rows, MAX_ROWS):
            self._put((number, table.slice(first, MAX_ROWS)))

    def _put(self, item: tuple[int, pa.Table]) -> None:
        while not self.closed.is_set():
            try:
                self._waiting.put(item, timeout=_POLL)
                return
            except queue.Full:
                continue

    def tables(self, query: StreamingQuery) -> Iterator[tuple[int, pa.Table]]:
        """All tables that are put until `query` ends or the stream is stopped; SourceError if it
        failed.
        """
        while not self._stopped.is_set():
            # Asked before looking into the queue: what an ended query put is there already.
            running = query.isActive and not self._failure
            try:
                yield self._waiting.get(timeout=_POLL if running else 0)
            except queue.Empty:
                if not running:
                    return self._check(query)
        return None

    def _check(self, query: StreamingQuery) -> None:
        ended_by = query.exception()
        failure = self._failure or (cause(ended_by) if ended_by is not None else "")
        if failure:
            raise SourceError(failure, place=self._place)
