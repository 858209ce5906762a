"""Options for Spark's readers and writers, which silently ignore those they do not know."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from anabranch.connectors.files.paths import absolute
from anabranch.connectors.options import Option, unknown
from anabranch.errors import ConfigError

_KNOWING = {
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcOptions",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
    "text": "org.apache.spark.sql.execution.datasources.text.TextOptions",
    "xml": "org.apache.spark.sql.catalyst.xml.XmlOptions",
}
"""Which of Spark's classes knows the options of a format. Other formats are not ours to judge."""
_OF_FILES = (
    "path",
    "basePath",
    "ignoreCorruptFiles",
    "ignoreMissingFiles",
    "maxRecordsPerFile",
    "mergeSchema",
    "modifiedAfter",
    "modifiedBefore",
    "partitionOverwriteMode",
    "pathGlobFilter",
    "recursiveFileLookup",
)
_OF_STREAMS = (
    "allowDuplicatedFileNames",
    "cleanSource",
    "discardCachedInputRatio",
    "fileNameOnly",
    "latestFirst",
    "maxBytesPerTrigger",
    "maxCachedFiles",
    "maxFileAge",
    "maxFilesPerTrigger",
    "sourceArchiveDir",
)
_METHODS = {"partitionby": "partition_by", "savemode": "mode"}
"""What people know of Spark's writer that is no option there."""


def check_spark_options(
    spark: SparkSession, format_: str, passed: Mapping[str, Any], declared: Iterable[Option]
) -> None:
    """Raises ConfigError for an option that Spark would silently ignore."""
    names = [option.name for option in declared]
    for name in passed:
        meant = _METHODS.get(name.lower())
        if meant in names:
            raise ConfigError(f"spark() has no option {name!r}", remedy=f"Write {meant} = ….")
    known = _known(spark, format_.lower())
    spelt = {name.lower() for name in known}
    for name in passed:
        if known and name.lower() not in spelt:
            raise unknown(f"spark({format_}) has no option {name!r}", name, [*names, *known])


def _known(spark: SparkSession, format_: str) -> list[str]:
    """The options that Spark knows for the format; empty if that is unknown."""
    jvm: Any = spark._jvm
    if format_ not in _KNOWING:
        return []
    try:
        knowing = functools.reduce(getattr, _KNOWING[format_].split("."), jvm)
        own = str(knowing.getAllOptions().mkString(",")).split(",")
    except (
        Py4JError,
        TypeError,
        AttributeError,
    ):  # another Spark, whose inside is not as we know it
        return []
    return [*own, *_OF_FILES, *_OF_STREAMS]


def with_absolute_path(passed: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The options with a relative `path` starting at `base`."""
    path = passed.get("path")
    if not isinstance(path, str) or ":/" in path:
        return dict(passed)
    return {**passed, "path": str(absolute(path, base))}


def local_path(options: Mapping[str, Any], base: Path) -> Path | None:
    """The file or folder of this machine that is read or written."""
    given = with_absolute_path(options, base).get("path", "")
    path = str(given).removeprefix("file://").removeprefix("file:")
    return Path(path) if path.startswith("/") else None
