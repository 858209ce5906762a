"""What every sink is: a place outside where the tuples of one stream go, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SinkContext:
    """`schema` holds the query's columns, then `_pos` and `_ts` (int64)."""

    query: str
    schema: pa.Schema
    options: Mapping[str, Any]
    base: Path
    spark: Callable[[], SparkSession]


class Sink(Protocol):
    def __init__(self, context: SinkContext) -> None:
        """Check options and that the place can be written to; raise ConfigError or SinkError.
        Nothing is created yet."""

    def open(self) -> None:
        """Create or truncate what is written to."""

    def write(self, table: pa.Table) -> None:
        """Write all rows of `table` (columns as in `schema`), or raise SinkError and leave what was
        there before the call."""

    def close(self) -> None:
        """Make everything written so far whole and visible; release files. Idempotent."""
