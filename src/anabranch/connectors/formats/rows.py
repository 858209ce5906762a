"""Rows from CSV, as Python's own reader takes it when it is strict, and from JSON texts, one
object each.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from anabranch.connectors.formats.table_builder import Block

csv.field_size_limit((1 << 31) - 1)
"""Of the whole process; whoever reads bounds records before they get here."""


def csv_block(texts: Sequence[tuple[int, bytes]], order: Sequence[int], what: str) -> Block:
    """The columns of numbered texts that hold one row each, without a header. `order` says where
    each column stands in a row. A blank text is no row; `what` is the word for a text.
    """
    width = max(order) + 1
    rows: list[list[str]] = []
    numbers: list[int] = []
    malformed: dict[int, str] = {}
    for number, value in texts:
        # Text may hold what other line separators there are.
        lines = io.StringIO(value.decode(errors="surrogateescape"), newline="")
        try:
            fields = [row for row in csv.reader(lines, strict=True) if row]
        except csv.Error as error:
            malformed[number] = explained(error)
            continue
        if len(fields) == 1 and len(fields[0]) == width:
            rows.append(fields[0])
            numbers.append(number)
        elif fields:
            malformed[number] = _misfit(fields, width, what)
    columns = list(zip(*rows, strict=True)) or [()] * width
    return Block([columns[index] for index in order], numbers, malformed)


def _misfit(rows: list[list[str]], width: int, what: str) -> str:
    if len(rows) > 1:
        return f"the {what} holds {len(rows)} lines"
    return f"the {what} has {len(rows[0])} fields where the stream has {width}"


def explained(error: csv.Error) -> str:
    """What is wrong with a row."""
    if "unexpected end" in str(error):
        return "a quoted field is never closed"
    return f"malformed CSV: {error}"


def json_block(
    texts: Iterable[tuple[int, bytes]],
    names: Sequence[str],
    parse: Callable[[bytes], Any],
    what: str = "line",
) -> Block:
    """The columns of numbered texts that hold one object each. A blank text is no row; `what` is
    the word for a text.
    """
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
    """The values of each name in `rows`, None where missing; a key in another case counts if the
    exact key is missing.
    """
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
    """A parser of lines. For DECIMAL columns it keeps numbers to the last digit, which takes
    longer.
    """
    decoder = json.JSONDecoder(parse_float=Decimal) if _has_decimal(schema) else json.JSONDecoder()

    def parse(line: bytes) -> Any:
        return decoder.decode(line.decode().rstrip())

    return parse


def _has_decimal(types: Iterable[Any]) -> bool:
    """Whether a field has a DECIMAL in it, at any depth."""
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
