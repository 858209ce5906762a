"""Files of JSON lines: one object per line."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.types as pt

from anabranch.connectors.files.read_lines import Lines, too_long
from anabranch.connectors.from_values import from_values
from anabranch.connectors.source import SourceContext
from anabranch.connectors.table_builder import Block, TableBuilder, source_names
from anabranch.errors import SourceError

BLOCK_BYTES = 4_000_000
BEGINNING = 4096
"""Bytes in which something must be seen of what a file is."""
_ARRAY = re.compile(rb"\s*\[\s*\{")


class JsonReader:
    """A key that is missing or null is NULL, keys beyond those declared are ignored, blank lines
    are no rows. BINARY is base64, as the jsonl sink and Spark write it; a DOUBLE may be "NaN",
    "Infinity" or "-Infinity"."""

    def __init__(self, context: SourceContext, on_error: str, max_line: int) -> None:
        self._context = context
        self._max_line = max_line
        self._skip = on_error == "skip"
        self._names = source_names(context)
        self._parse = json_parser(context.schema)
        convert = partial(from_values, base64_text=True)
        self._builder = TableBuilder(context, on_error, convert)

    def check(self, file: Path) -> None:
        """A file that is one JSON array has no line that is a row."""
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
        """A mark is the byte and the number of lines behind which it lies."""
        # Read as bytes: only \n ends a line, while text may hold other line separators.
        with file.open("rb") as lines:
            byte, count = start or (_bom(lines), 0)
            lines.seek(byte)
            reading = Lines(
                lines, byte, self._max_line, self._context.stopped, skip=self._skip
            )  # fmt: skip
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
    """How many bytes of the file come before its text."""
    return len(BOM_UTF8) if lines.read(len(BOM_UTF8)) == BOM_UTF8 else 0


def json_block(
    texts: Iterable[tuple[int, bytes]],
    names: Sequence[str],
    parse: Callable[[bytes], Any],
    what: str = "line",
) -> Block:
    """Numbered texts of one object each, by columns; a blank one is no row. `what` a text is
    called."""
    rows: list[Mapping[str, Any]] = []
    numbers: list[int] = []
    malformed: dict[int, str] = {}
    for number, text in texts:
        try:
            row = parse(text)
        except (ValueError, RecursionError) as error:
            if text.strip():
                malformed[number] = _explain(error, what)
            continue
        if isinstance(row, dict):
            rows.append(row)
            numbers.append(number)
        else:
            malformed[number] = f"the {what} is JSON, but not an object like {{…}}"
    return Block(by_name(rows, names), numbers, malformed)


def by_name(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[Any]]:
    """The values of each name in `rows`, None where missing; a key in other case counts too, but
    after the exact one."""
    spellings: dict[str, list[str]] = {}
    for key in sorted(key for key in set().union(*rows) if isinstance(key, str)):
        spellings.setdefault(key.lower(), []).append(key)
    return [_values(rows, name, spellings.get(name.lower(), [])) for name in names]


def _values(rows: Sequence[Mapping[str, Any]], name: str, spelt: list[str]) -> list[Any]:
    if len(spelt) < 2:
        key = spelt[0] if spelt else name
        return [row.get(key) for row in rows]
    keys = sorted(spelt, key=lambda key: key != name)
    return [next((row[key] for key in keys if key in row), None) for row in rows]


def json_parser(schema: pa.Schema) -> Callable[[bytes], Any]:
    """With DECIMAL columns numbers are kept to the last digit, which takes longer."""
    decoder = json.JSONDecoder(parse_float=Decimal) if _has_decimal(schema) else json.JSONDecoder()

    def parse(line: bytes) -> Any:
        return decoder.decode(line.decode().rstrip())

    return parse


def _has_decimal(types: Iterable[Any]) -> bool:
    """Of fields, down through nested types."""
    for field in types:
        inner = [field.type.field(index) for index in range(field.type.num_fields)]
        if pt.is_decimal(field.type) or _has_decimal(inner):
            return True
    return False


def _explain(error: Exception, what: str) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"the {what} is not valid UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"malformed JSON: {error.msg} at column {error.colno}"
    return f"malformed JSON: {error}"
