"""Writes results as JSON lines."""

from __future__ import annotations

import json

import pyarrow as pa

from anabranch.connectors.files.line_file import LineFile
from anabranch.connectors.files.line_sink import LineSink
from anabranch.connectors.formats.json_text import json_objects, text_bytes

_PIECE_ROWS = 65_536
"""Joined at a time; an Arrow array of texts ends at 2 GB."""


class JsonlSink(LineSink):
    """One object a tuple: the query's columns, then `_pos` and `_ts`. `json_text` says how types
    are written, `line_file` how lines stay whole.
    """

    name = "jsonl"

    def last_position(self, file: LineFile) -> int:
        line = file.last_line()
        return int(json.loads(line)["_pos"]) if line else 0

    def lines(self, table: pa.Table) -> bytes:
        batches = table.to_batches(_PIECE_ROWS)
        return b"".join(text_bytes(json_objects(batch, end="\n")) for batch in batches)
