"""Results through any writer of Spark."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from anabranch.errors import SinkError
from anabranch.site.cause import SPARK_ERRORS, cause
from anabranch.site.options import TEXT, Option, split, take
from anabranch.site.sinks.base import SinkContext
from anabranch.site.wrappers.paths import absolute


class SparkSink:
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
    )
    others = "options of Spark's writer"

    def __init__(self, context: SinkContext) -> None:
        known, passed = split(self.options, context.options)
        chosen = take("spark", self.options, known)
        self._format: str = chosen["format"]
        self._mode: str = chosen["mode"]
        self._next_mode = self._mode
        self._passed = self._with_absolute_path(passed, context)
        self._spark = context.spark

    def open(self) -> None:
        self._next_mode = self._mode

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        try:
            frame = self._spark().createDataFrame(table)
            writer = frame.write.format(self._format).options(**self._passed)
            writer.mode(self._next_mode).save()
        except SPARK_ERRORS as error:
            raise SinkError(
                cause(error),
                place=f"spark({self._format})",
                remedy="Check the format and its options.",
            ) from error
        self._next_mode = "append"

    def close(self) -> None:
        """Nothing to release: every write is complete in itself."""

    @staticmethod
    def _with_absolute_path(passed: dict[str, Any], context: SinkContext) -> dict[str, Any]:
        path = passed.get("path")
        if not isinstance(path, str) or ":/" in path:
            return passed
        return passed | {"path": str(absolute(path, context.base))}
