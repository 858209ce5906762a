"""Reads files of JSON lines: one object per line."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from anabranch.connectors.files.read_lines import Lines, too_long
from anabranch.connectors.formats.columns import from_values
from anabranch.connectors.formats.rows import json_block, json_parser
from anabranch.connectors.formats.table_builder import Block, TableBuilder, source_names
from anabranch.connectors.source import SourceContext
from anabranch.errors import SourceError

BLOCK_BYTES = 4_000_000
BEGINNING = 4096
"""Bytes in which something must be seen of what a file is."""
_ARRAY = re.compile(rb"\s*\[\s*\{")


class JsonReader:
    """A missing or null key is NULL, keys that are not declared are ignored, blank lines are no
    rows. BINARY is base64, as the jsonl sink and Spark write it; a DOUBLE may be "NaN", "Infinity"
    or "-Infinity".
    """

    def __init__(self, context: SourceContext, on_error: str, max_line: int) -> None:
        self._context = context
        self._max_line = max_line
        self._skip = on_error == "skip"
        self._names = source_names(context)
        self._parse = json_parser(context.schema)
        convert = partial(from_values, base64_text=True)
        self._builder = TableBuilder(context, on_error, convert)

    def check(self, file: Path) -> None:
        """Raises SourceError if the file is one JSON array, because then no line is a row."""
        with file.open("rb") as data:
            data.seek(_bom(data))
            if _ARRAY.match(data.read(BEGINNING)):
                raise SourceError(
                    "the file is one JSON array",
                    place=str(file),
                    remedy="Write one object a line: jq -c '.[]' FILE > FILE.jsonl makes them.",
                )

    def read(
        self, file: Path, start: Any = None, until: Any = None
    ) -> Iterator[tuple[pa.Table, Any]]:
        """Reads tables. A mark is a byte of the file and the number of lines before it."""
        # Read as bytes: only \n ends a line, while text may hold other line separators.
        with file.open("rb") as lines:
            byte, count = start or (_bom(lines), 0)
            lines.seek(byte)
            reading = Lines(lines, byte, self._max_line, self._context.stopped, skip=self._skip)
            while not self._context.stopped.is_set() and (until is None or reading.byte < until[0]):
                # It stops behind the line that goes beyond what it was given.
                size = BLOCK_BYTES if until is None else until[0] - reading.byte
                chunk = reading.take(min(size, BLOCK_BYTES))
                if not chunk or self._context.stopped.is_set():
                    return
                block = self._block(chunk, count)
                count += len(chunk)
                if block.numbers or block.malformed:
                    table = self._builder.build(block, lambda line: f"{file}:{line}")
                    yield table, [reading.byte, count]

    def _block(self, chunk: list[bytes | None], count: int) -> Block:
        numbered = list(enumerate(chunk, count + 1))
        given = ((number, line) for number, line in numbered if line is not None)
        block = json_block(given, self._names, self._parse)
        long = {number: too_long(self._max_line) for number, line in numbered if line is None}
        return replace(block, malformed=block.malformed | long)


def _bom(lines: BinaryIO) -> int:
    """The number of bytes of the file before its text."""
    return len(BOM_UTF8) if lines.read(len(BOM_UTF8)) == BOM_UTF8 else 0
