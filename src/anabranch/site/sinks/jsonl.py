"""Results as JSON lines."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.site.options import TEXT, Option, take
from anabranch.site.sinks.base import SinkContext
from anabranch.site.sinks.json_text import json_column, text_bytes
from anabranch.site.sinks.line_file import LineFile


class JsonlSink:
    """One object a tuple: the query's columns, then `_pos` and `_ts`. How types are written says
    `json_text`; how lines stay whole, `line_file`."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("path", TEXT, "the file, which is truncated", required=True),
    )

    def __init__(self, context: SinkContext) -> None:
        chosen = take("jsonl", self.options, context.options)
        self._file = LineFile(chosen["path"], context.base)

    def open(self) -> None:
        self._file.open()

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._file.add(_lines(table))

    def close(self) -> None:
        self._file.close()


def _lines(table: pa.Table) -> bytes:
    parts: list[Any] = []
    for index, name in enumerate(table.column_names):
        start = "{" if index == 0 else ", "
        parts += [f"{start}{json.dumps(name, ensure_ascii=False)}: ", json_column(table[index])]
    # Large offsets: the lines of one table may be more than 2 GB.
    texts = [part if isinstance(part, str) else part.cast(pa.large_string()) for part in parts]
    lines = pc.binary_join_element_wise(*texts, "}\n", "")
    return b"".join(map(text_bytes, lines.chunks))
