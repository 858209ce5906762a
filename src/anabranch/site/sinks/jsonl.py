"""Results as JSON lines."""

from __future__ import annotations

import json
from typing import ClassVar

import pyarrow as pa

from anabranch.site.options import TEXT, Option, take
from anabranch.site.sinks.base import SinkContext
from anabranch.site.sinks.json_text import json_objects, text_bytes
from anabranch.site.sinks.line_file import LineFile

_PIECE_ROWS = 65_536
"""Joined at a time; an Arrow array of texts ends at 2 GB."""


class JsonlSink:
    """One object a tuple: the query's columns, then `_pos` and `_ts`. How types are written says
    `json_text`; how lines stay whole, `line_file`."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "the file, which is truncated", required=True),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("jsonl", self.options, context.options)
        self._file = LineFile(chosen["path"], context.base)
        self._resume = context.resume

    def open(self) -> None:
        self._file.open(keep=self._resume)

    def written(self) -> int:
        line = self._file.last_line() if self._resume else b""
        return int(json.loads(line)["_pos"]) if line else 0

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._file.add(_lines(table))

    def close(self) -> None:
        self._file.close()


def _lines(table: pa.Table) -> bytes:
    batches = table.to_batches(_PIECE_ROWS)
    return b"".join(text_bytes(json_objects(batch, end="\n")) for batch in batches)
