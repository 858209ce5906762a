"""Folds values of tuples into one value per group, in the order of the tuples.

Sums of floats are taken from left to right, one tuple after the other: the last bit depends on
nothing but a group's own values and their order. Everything else is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.window.panes import Ints

Values = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]
_WORD = 32
_LOW = 2**_WORD - 1
_GREATEST = 2**63 - 1


@dataclass(frozen=True)
class Groups:
    """The group of each tuple; there are `count` of them, numbered from 0, none empty."""

    numbers: Ints
    count: int

    def counts(self, valid: Flags) -> Ints:
        counted: Ints = np.bincount(self.numbers[valid], minlength=self.count).astype(np.int64)
        return counted

    def float_sums(self, values: Values) -> Values:
        sums: Values = np.bincount(self.numbers, weights=values, minlength=self.count)
        return sums

    def int_sums(self, values: Ints) -> Values:
        """The sums: Python's ints if one may exceed 64 bits, else int64."""
        limit = _GREATEST // max(1, len(values))
        if not len(values) or -limit < int(values.min()) <= int(values.max()) < limit:
            sums = np.zeros(self.count, np.int64)
            np.add.at(sums, self.numbers, values)
            return sums
        return self._wide_sums([values & _LOW, values >> _WORD])

    def decimal_sums(self, low: npt.NDArray[np.uint64], high: Ints) -> Values:
        """The sums as Python's ints, of 128-bit numbers in two words each."""
        small = [
            (low & np.uint64(_LOW)).astype(np.int64),
            (low >> np.uint64(_WORD)).astype(np.int64),
        ]
        return self._wide_sums([*small, high & _LOW, high >> _WORD])

    def _wide_sums(self, words: list[Ints]) -> Values:
        """The sums of numbers cut into words of 32 bits, the lowest first: those sums do not
        overflow.
        """
        total: Values = np.zeros(self.count, object)
        for place, word in enumerate(words):
            sums = np.zeros(self.count, np.int64)
            np.add.at(sums, self.numbers, word)
            total += sums.astype(object) * 2 ** (_WORD * place)
        return total

    def extremes(self, keys: Ints, valid: Flags, *, least: bool) -> tuple[Ints, Flags]:
        """For each group the first tuple with its least or greatest key, and whether it has one."""
        numbers, keys = self.numbers[valid], keys[valid]
        best = np.full(self.count, _GREATEST if least else -_GREATEST - 1, np.int64)
        (np.minimum if least else np.maximum).at(best, numbers, keys)
        hits = np.flatnonzero(keys == best[numbers])
        first = np.zeros(self.count, np.int64)
        first[numbers[hits[::-1]]] = np.flatnonzero(valid)[hits[::-1]]
        return first, self.counts(valid) > 0

    def bounds(self, values: Ints, *, least: bool) -> Ints:
        best = np.full(self.count, _GREATEST if least else -_GREATEST - 1, np.int64)
        (np.minimum if least else np.maximum).at(best, self.numbers, values)
        return best


def float_keys(values: npt.NDArray[np.float64]) -> Ints:
    """Whole numbers that order as Spark orders floats: NaN is the greatest, 0.0 and -0.0 equal."""
    canonical = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = canonical.view(np.int64)
    keys: Ints = bits ^ ((bits >> 63) & _GREATEST)
    return keys


def ranks(column: pa.ChunkedArray) -> Ints:
    """Whole numbers that order as the values of any type that Arrow orders; NULLs have any."""
    encoded = column.combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    numbers = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    ranked: Ints = rank[numbers] if len(rank) else np.zeros(len(column), np.int64)
    return ranked
