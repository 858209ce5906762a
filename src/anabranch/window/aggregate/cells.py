"""The partial states that SQL's aggregate functions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import ConfigError, TaskError
from anabranch.window.aggregate.fold import Groups, float_keys, ranks
from anabranch.window.aggregate.state import Columns, Values
from anabranch.window.panes import Ints

SCALE = 38
"""Decimals are whole numbers of 10^-38 here, which is as fine as any of Spark's."""
Kind = Literal["int", "float", "decimal", "object"]

_DTYPES: dict[Kind, str] = {"int": "i8", "float": "f8", "decimal": "O", "object": "O"}


@dataclass(frozen=True)
class Argument:
    """A value that an aggregate gets for each tuple: Spark SQL, cast to a DOUBLE if that is
    asked.
    """

    sql: str
    double: bool = False

    @property
    def spark(self) -> str:
        return f"CAST({self.sql} AS DOUBLE)" if self.double else self.sql


def kind_of(type: pa.DataType) -> Kind:
    """How values of a type are kept so that they order and add as Spark's do."""
    if pa.types.is_floating(type):
        return "float"
    if pa.types.is_decimal(type):
        return "decimal"
    if pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_temporal(type):
        return "int"
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return "object"  # Python orders strings by code points, which is how UTF-8 bytes order
    raise ConfigError(f"values of type {type} cannot be compared in a window")


def to_values(column: pa.ChunkedArray, kind: Kind) -> Values:
    """The values with 0 or None in place of NULLs."""
    if kind == "float":
        return _numpy(pc.fill_null(column.cast(pa.float64()), 0.0))
    if kind == "int":
        return _numpy(pc.fill_null(as_int(column), 0))
    values: Values = np.empty(len(column), object)
    if kind == "decimal":
        values[:] = _unscaled(column) * 10 ** (SCALE - column.type.scale)
    else:
        values[:] = column.to_pylist()
    return values


def to_arrow(
    values: Values, valid: npt.NDArray[np.bool_], kind: Kind, type: pa.DataType
) -> pa.Array:
    """The values back in their own type, NULL where not `valid`."""
    if kind == "decimal":
        return _decimals(values, valid, type)
    if kind == "object":
        return pa.array([v if ok else None for v, ok in zip(values, valid, strict=True)], type)
    if kind == "float":
        values = np.where(np.isnan(values), np.nan, values)  # one NaN of the many there are
        return pa.array(values, pa.float64(), mask=~valid).cast(type, safe=False)
    return from_int(pa.array(values, pa.int64(), mask=~valid), type)


def _numpy(column: pa.ChunkedArray) -> Values:
    values: Values = column.to_numpy()
    return values


def as_int(column: pa.ChunkedArray) -> pa.ChunkedArray:
    width = getattr(column.type, "bit_width", 64)
    if pa.types.is_temporal(column.type) and width == 32:
        column = column.cast(pa.int32())
    return column.cast(pa.int64())


def from_int(values: pa.Array, type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(type) and type.bit_width == 32:
        values = values.cast(pa.int32())
    return values.cast(type)


def _unscaled(column: pa.ChunkedArray) -> Values:
    low, high = _words(column)
    numbers: Values = low.astype(object) + high.astype(object) * 2**64
    return numbers


def _words(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint64], Ints]:
    """The low and the high half of each decimal's whole number; 0 stands in for NULLs."""
    whole = column.cast(pa.decimal128(38, column.type.scale)).combine_chunks()
    words = np.frombuffer(whole.buffers()[1], np.int64).reshape(-1, 2)
    words = words[whole.offset : whole.offset + len(whole)]
    if whole.null_count:
        words = np.where(whole.is_valid().to_numpy(zero_copy_only=False)[:, None], words, 0)
    return words[:, 0].view(np.uint64), words[:, 1]


def valid_of(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Whether each value is not NULL."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy()
    return valid


def _decimals(values: Values, valid: npt.NDArray[np.bool_], type: pa.DataType) -> pa.Array:
    """Rounds half up, away from zero, to the type's scale."""
    unit = 10 ** (SCALE - type.scale)
    limit = 10**type.precision
    words = np.zeros((len(values), 2), np.uint64)
    for row in np.flatnonzero(valid).tolist():
        size = (abs(values[row]) * 2 + unit) // (2 * unit)
        if size >= limit:
            raise TaskError(f"an aggregate exceeds {type}")
        number = (size if values[row] >= 0 else -size) % 2**128
        words[row] = number % 2**64, number // 2**64
    mask = pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(type, len(values), [mask, pa.py_buffer(words)])


@dataclass(frozen=True)
class Count:
    arguments: tuple[Argument, ...] = ()
    dtypes = ("i8",)

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        valid = np.ones(len(groups.numbers), np.bool_)
        for column in columns:
            valid &= valid_of(column)
        return [groups.counts(valid)]

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        return [earlier[0] + later[0]]


@dataclass(frozen=True)
class Sum:
    """The sum, and the number of its values: with none it is NULL."""

    argument: Argument
    kind: Kind
    shown: str = ""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.argument,)

    @property
    def dtypes(self) -> tuple[str, ...]:
        return _DTYPES[self.kind], "i8"

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        (column,) = columns
        count = groups.counts(valid_of(column))
        if self.kind == "float":
            return [groups.float_sums(to_values(column, "float")), count]
        if self.kind == "decimal":
            total = groups.decimal_sums(*_words(column))
            self._check(total, 10 ** min(38, column.type.precision + 10))
            return [total * 10 ** (SCALE - column.type.scale), count]
        total = groups.int_sums(to_values(column, "int"))
        self._check(total, 2**63)
        return [total.astype(np.int64), count]

    def _check(self, total: Values, limit: int) -> None:
        if total.dtype == object and any(not -limit <= one < limit for one in total):
            raise self._overflow()

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        a, b = earlier[0], later[0]
        total = a + b
        if self.kind == "int" and (((a ^ total) & (b ^ total)) < 0).any():
            raise self._overflow()
        return [total, earlier[1] + later[1]]

    def _overflow(self) -> TaskError:
        limit = "BIGINT" if self.kind == "int" else "its type"
        remedy = "Sum it as DECIMAL(38, 0) or as DOUBLE." if self.kind == "int" else ""
        shown = self.shown or self.argument.sql
        return TaskError(f"the sum of {shown} exceeds {limit}", remedy=remedy)


@dataclass(frozen=True)
class Extreme:
    """The least or greatest value, and whether there is one. NaN is the greatest number. 0.0 and
    -0.0 are equal: the first one counts.
    """

    argument: Argument
    least: bool
    kind: Kind

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.argument,)

    @property
    def dtypes(self) -> tuple[str, ...]:
        return _DTYPES[self.kind], "?"

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        (column,) = columns
        first, valid = groups.extremes(self._keys(column), valid_of(column), least=self.least)
        return [to_values(column.take(pa.array(first)), self.kind), valid]

    def _keys(self, column: pa.ChunkedArray) -> Ints:
        if self.kind == "int":
            return to_values(column, "int")
        if self.kind == "float":
            return float_keys(to_values(column, "float"))
        return ranks(column)

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        (a, has_a), (b, has_b) = earlier, later
        both = has_a & has_b
        take = has_b & ~has_a
        take[both] = (
            self._before(b[both], a[both]) if self.least else self._before(a[both], b[both])
        )
        return [np.where(take, b, a), has_a | has_b]

    def _before(self, a: Values, b: Values) -> npt.NDArray[np.bool_]:
        less: npt.NDArray[np.bool_] = np.asarray(a < b, np.bool_)
        if self.kind == "float":
            less |= np.isnan(b) & ~np.isnan(a)
        return less


@dataclass(frozen=True)
class Bound:
    """The least or greatest of a column of whole numbers that has no NULLs."""

    argument: Argument
    least: bool
    dtypes = ("i8",)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.argument,)

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        return [groups.bounds(_numpy(columns[0]), least=self.least)]

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        pick = np.minimum if self.least else np.maximum
        return [pick(earlier[0], later[0])]


@dataclass(frozen=True)
class Moments:
    """Count, mean and the sum of squared deviations from it, merged as Chan et al. do."""

    argument: Argument
    dtypes = ("i8", "f8", "f8")

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return (self.argument,)

    def fold(self, groups: Groups, columns: Sequence[pa.ChunkedArray]) -> Columns:
        """Folds in two passes: first the mean, then how far off each value is."""
        values, valid = to_values(columns[0], "float"), valid_of(columns[0])
        count = groups.counts(valid)
        with np.errstate(all="ignore"):  # inf − inf is NaN, as in SQL
            mean = groups.float_sums(values) / np.maximum(count, 1)
            off = np.where(valid, values - mean[groups.numbers], 0.0)
            return [count, mean, groups.float_sums(off * off)]

    def merge(self, earlier: Columns, later: Columns) -> Columns:
        (n_a, mean_a, m2_a), (n_b, mean_b, m2_b) = earlier, later
        n = n_a + n_b
        delta = mean_b - mean_a
        share = n_b / np.maximum(n, 1)
        mean = mean_a + delta * share
        m2 = m2_a + m2_b + delta * delta * (n_a * share)
        for empty, kept_mean, kept_m2 in ((n_a == 0, mean_b, m2_b), (n_b == 0, mean_a, m2_a)):
            mean, m2 = np.where(empty, kept_mean, mean), np.where(empty, kept_m2, m2)
        return [n, mean, m2]
