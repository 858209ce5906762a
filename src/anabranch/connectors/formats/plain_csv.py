"""CSV that two readers understand alike is read by Arrow's: nearly all CSV, and much faster.

Arrow's reader is more lenient than Python's strict one where a quote stands in the middle of a
field, and does not say where a row is malformed. So it gets only clear cases; all else goes to
`csv_rows` and `files.read_csv`, which give the same result for plain rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.types as pt

from anabranch.connectors.formats.columns import from_text

_NUMBERS = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}
_QUOTE, _COMMA, _NEWLINE, _RETURN = b'",\n\r'


def line_ends(text: bytes) -> np.ndarray[Any, Any]:
    """The places of the line breaks in `text`."""
    return np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE)


def filled_lines(text: bytes, ends: np.ndarray[Any, Any]) -> Sequence[int]:
    """The numbers, from 1 on, of the lines that are not blank; `ends` are the line breaks."""
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts
    shortest = lengths.min(initial=2)
    if shortest > 1:
        return range(1, len(ends) + 1)
    bytes_there = np.frombuffer(text + b"\n", np.uint8)
    blank = (lengths == 0) | ((lengths == 1) & (bytes_there[starts] == _RETURN))
    numbers: list[int] = (np.flatnonzero(~blank) + 1).tolist()
    return numbers


def is_plain(text: bytes, ends: np.ndarray[Any, Any], longest: int) -> bool:
    """Whether every row of `text`, which begins and ends with whole rows, is one line of at most
    `longest` bytes, and every quote begins or ends a field or is doubled within one. `ends` are its
    line breaks.
    """
    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
        return False
    if np.diff(ends, prepend=-1, append=len(text) - 1).max(initial=0) > longest:
        return False
    return b'"' not in text or _quotes_fields(np.frombuffer(text, np.uint8), ends)


def _quotes_fields(text: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> bool:
    quotes = np.flatnonzero(text == _QUOTE)
    if len(quotes) % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    doubled = opening[1:] == closing[:-1] + 1
    before = text[np.maximum(opening - 1, 0)]
    begins = (opening == 0) | (before == _COMMA) | (before == _NEWLINE)
    begins[1:] |= doubled
    after = text[np.minimum(closing + 1, len(text) - 1)]
    finishes = (closing == len(text) - 1) | np.isin(after, (_COMMA, _NEWLINE, _RETURN))
    finishes[:-1] |= doubled
    one_line = np.searchsorted(ends, opening) == np.searchsorted(ends, closing)
    return bool((begins & finishes & one_line).all())


def plain_columns(
    text: bytes, width: int, wanted: Sequence[int], types: Sequence[pa.DataType | None]
) -> list[pa.Array] | None:
    """The `wanted` fields of plain rows with `width` fields, for `from_csv` to make the `types`
    from. None if a row has another width, or text is not UTF-8.
    """
    parsed = _numbers(wanted, types)
    # A hexadecimal number would be one for Arrow.
    if b"x" not in text and b"X" not in text and parsed:
        try:
            return _read(text, width, wanted, parsed)
        except pa.ArrowException:
            pass  # the columns of text say which value is no number
    try:
        return _read(text, width, wanted, {})
    except pa.ArrowException:
        return None


def from_csv(values: Any, type: pa.DataType | None) -> pa.Array:
    """The column as `from_text` gives it; the column may be parsed already."""
    if isinstance(values, pa.Array) and not pt.is_string(values.type):
        return values
    return from_text(values, type)


def _numbers(wanted: Sequence[int], types: Sequence[pa.DataType | None]) -> dict[int, pa.DataType]:
    """The fields that Arrow parses itself, with their types: numbers, and times that are whole
    numbers.
    """
    kinds: dict[int, set[pa.DataType | None]] = {}
    for index, type in zip(wanted, types, strict=True):
        kinds.setdefault(index, set()).add(pa.int64() if type is None else type)
    single = {index: kind.pop() for index, kind in kinds.items() if len(kind) == 1}
    return {index: type for index, type in single.items() if type in _NUMBERS}


def _read(
    text: bytes, width: int, wanted: Sequence[int], parsed: dict[int, pa.DataType]
) -> list[pa.Array]:
    names = [f"c{number}" for number in range(width)]
    kinds = dict.fromkeys(names, pa.string())
    kinds |= {names[index]: type for index, type in parsed.items()}
    table = pa_csv.read_csv(
        pa.py_buffer(text),
        pa_csv.ReadOptions(use_threads=False, block_size=len(text), column_names=names),
        pa_csv.ParseOptions(newlines_in_values=False),
        pa_csv.ConvertOptions(
            column_types=kinds,
            include_columns=[names[index] for index in dict.fromkeys(wanted)],
            null_values=[""],
            strings_can_be_null=False,
        ),
    )
    return [table.column(names[index]).combine_chunks() for index in wanted]
