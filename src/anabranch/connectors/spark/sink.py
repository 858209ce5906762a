"""Writes results through any writer of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.connectors.files.paths import Partitions
from anabranch.connectors.files.paths import written as written_place
from anabranch.connectors.options import TEXT, Option, split, take
from anabranch.connectors.sink import ANEW, Beginning, Sink, SinkContext
from anabranch.connectors.spark.options import check_spark_options, local_path, with_absolute_path
from anabranch.errors import SinkError
from anabranch.plan.places import Place
from anabranch.spark.failures import SPARK_ERRORS, cause


class SparkSink(Sink):
    """Each table is one job. All options but these go to Spark's writer; a relative `path` starts
    at the script's folder. Whether a failing write leaves something behind is up to the format."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("format", TEXT, "a format that Spark writes: 'orc', 'jdbc', …", required=True),
        Option(
            "mode",
            TEXT,
            "'append', or 'overwrite' what is there with the first table and append the others",
            default="append",
            choices=("append", "overwrite"),
        ),
        Option("partition_by", TEXT, "a column, or several with commas, as Spark's partitionBy"),
    )
    others = "options of Spark's writer"

    def __init__(self, context: SinkContext) -> None:
        known, passed = split(self.options, context.options)
        chosen = take("spark", self.options, known)
        self._format: str = chosen["format"]
        self._mode: str = chosen["mode"]
        self._next_mode = self._mode
        self._partition_by = Partitions("spark", chosen["partition_by"], context.schema).columns
        check_spark_options(context.spark(), self._format, passed, self.options)
        self._passed = with_absolute_path(passed, context.base)
        self._spark = context.spark

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        path = local_path(options, base)
        return written_place(path, folder=True) if path else []

    def open(self, begin: Beginning = ANEW) -> None:
        self._next_mode = self._mode

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        try:
            frame = self._spark().createDataFrame(table)
            writer = frame.write.format(self._format).options(**self._passed)
            if self._partition_by:
                writer = writer.partitionBy(*self._partition_by)
            writer.mode(self._next_mode).save()
        except SPARK_ERRORS as error:
            raise SinkError(
                cause(error),
                place=f"spark({self._format})",
                remedy="Check the format and its options.",
            ) from error
        self._next_mode = "append"

    def close(self) -> None:
        """Releases nothing: every write is complete in itself."""
