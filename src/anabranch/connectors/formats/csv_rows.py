"""Rows from CSV, as Python's own reader reads it in strict mode."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

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
            found = [row for row in csv.reader(lines, strict=True) if row]
        except csv.Error as error:
            malformed[number] = explained(error)
            continue
        if len(found) == 1 and len(found[0]) == width:
            rows.append(found[0])
            numbers.append(number)
        elif found:
            malformed[number] = _misfit(found, width, what)
    columns = list(zip(*rows, strict=True)) or [()] * width
    return Block([columns[index] for index in order], numbers, malformed)


def _misfit(found: list[list[str]], width: int, what: str) -> str:
    if len(found) > 1:
        return f"the {what} holds {len(found)} lines"
    return f"the {what} has {len(found[0])} fields where the stream has {width}"


def explained(error: csv.Error) -> str:
    """What is wrong with a row."""
    if "unexpected end" in str(error):
        return "a quoted field is never closed"
    return f"malformed CSV: {error}"
