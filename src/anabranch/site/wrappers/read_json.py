"""Files of JSON lines: one object per line."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from anabranch.site.wrappers.base import SourceContext
from anabranch.site.wrappers.from_values import from_values
from anabranch.site.wrappers.tables import Block, TableBuilder, source_names

BLOCK_BYTES = 4_000_000


class JsonReader:
    """A key that is missing or null is NULL, keys beyond those declared are ignored, blank lines
    are no rows. BINARY is base64, as the jsonl sink and Spark write it; a DOUBLE may be "NaN",
    "Infinity" or "-Infinity"."""

    def __init__(self, context: SourceContext, on_error: str) -> None:
        self._context = context
        self._names = source_names(context)
        self._parse = _parser(context.schema)
        convert = partial(from_values, base64_text=True)
        self._builder = TableBuilder(context, on_error, convert)

    def read(self, file: Path) -> Iterator[pa.Table]:
        # Read as bytes: only \n ends a line, while text may hold other line separators.
        with file.open("rb") as lines:
            first = 1
            if lines.peek(len(BOM_UTF8)).startswith(BOM_UTF8):
                lines.read(len(BOM_UTF8))
            while not self._context.stopped.is_set():
                chunk = lines.readlines(BLOCK_BYTES)
                if not chunk:
                    return
                block = self._block(chunk, first)
                if block.numbers or block.malformed:
                    yield self._builder.build(block, lambda line: f"{file}:{line}")
                first += len(chunk)

    def _block(self, lines: Iterable[bytes], first: int) -> Block:
        rows: list[Mapping[str, Any]] = []
        numbers: list[int] = []
        malformed: dict[int, str] = {}
        for number, line in enumerate(lines, first):
            try:
                row = self._parse(line)
            except (ValueError, RecursionError) as error:
                if line.strip():
                    malformed[number] = _explain(error)
                continue
            if isinstance(row, dict):
                rows.append(row)
                numbers.append(number)
            else:
                malformed[number] = "the line is JSON, but not an object like {…}"
        return Block(by_name(rows, self._names), numbers, malformed)


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


def _parser(schema: pa.Schema) -> Callable[[bytes], Any]:
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


def _explain(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the line is not valid UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"malformed JSON: {error.msg} at column {error.colno}"
    return f"malformed JSON: {error}"
