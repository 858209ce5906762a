"""Numbers the keys of a GROUP BY, so that partial aggregates can lie in arrays."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.window.aggregate.cells import as_int, from_int
from anabranch.window.codes import codes_of, first_of_each
from anabranch.window.panes import Ints

Seen = tuple[int, Hashable]
"""A key's number and a value that occurred with it."""


KEY_BYTES = 300
"""About what a key takes: a tuple of Python's, its entry, and its row of the table."""


class Keys:
    """Small numbers for the keys that something is held for; freed numbers are given again. The
    numbers never show in a result, so they may depend on the past.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._numbers: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._holds = np.zeros(0, np.int64)
        self._free: list[int] = []
        self._table: pa.Table | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def nbytes(self) -> int:
        return KEY_BYTES * len(self._keys)

    def number(self, columns: Sequence[pa.ChunkedArray], rows: int) -> Ints:
        """The number of the key in each row. It is the key's only while it is held."""
        columns = [_stored(column) for column in columns]
        codes = codes_of(columns, rows)
        distinct, at = first_of_each(codes)
        numbers = np.fromiter(
            map(self._number, _rows([column.take(at) for column in columns], len(at))),
            np.int64,
            len(at),
        )
        result: Ints = numbers[distinct]
        return result

    def _number(self, key: Hashable) -> int:
        number = self._numbers.get(key)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._keys[number] = key
            else:
                number = len(self._keys)
                self._keys.append(key)
            self._numbers[key] = number
            self._table = None
        return number

    def hold(self, numbers: Ints) -> None:
        """Holds the keys once for each part of partial aggregates, which has each number once."""
        if len(self._holds) < len(self._keys):
            more = np.zeros(2 * len(self._keys) - len(self._holds), np.int64)
            self._holds = np.concatenate([self._holds, more])
        self._holds[numbers] += 1

    def release(self, numbers: Ints) -> None:
        self._holds[numbers] -= 1
        for number in numbers[self._holds[numbers] == 0].tolist():
            del self._numbers[self._keys[number]]
            self._keys[number] = None
            self._free.append(number)

    def columns(self, numbers: Ints) -> list[pa.ChunkedArray]:
        """The key columns of the keys with these numbers."""
        if not self._schema.names:
            return []
        if self._table is None:
            nothing = (None,) * len(self._schema.names)
            values = zip(*(nothing if key is None else key for key in self._keys), strict=True)
            fields = zip(values, self._schema, strict=True)
            self._table = pa.table([_restored(v, f.type) for v, f in fields], schema=self._schema)
        taken = self._table.take(pa.array(numbers))
        return list(taken.columns)


def frozen(value: Any) -> Hashable:
    """A Python value that equals another one exactly if Spark groups the two together."""
    if isinstance(value, float):
        return math.nan if value != value else value + 0.0  # and no -0.0
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return tuple(map(frozen, value.values()))
    return value  # type: ignore[no-any-return]


def rows_of(columns: Sequence[pa.ChunkedArray]) -> list[Hashable]:
    """Each row of `columns` as a tuple of values that `frozen` gives."""
    return list(_rows([_stored(column) for column in columns], len(columns[0])))


def _rows(columns: Sequence[pa.ChunkedArray], rows: int) -> list[tuple[Hashable, ...]]:
    if not columns:
        return [()] * rows
    plain = [
        column.to_pylist() if _plain(column.type) else list(map(frozen, column.to_pylist()))
        for column in columns
    ]
    return list(zip(*plain, strict=True))


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with times as numbers: Python's own times end with the year 9999."""
    return as_int(column) if pa.types.is_temporal(column.type) else column


def _restored(values: Sequence[Hashable], type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(type):
        return from_int(pa.array(values, pa.int64()), type)
    return pa.array(values, type)


def _plain(type: pa.DataType) -> bool:
    return not (pa.types.is_floating(type) or pa.types.is_nested(type))
