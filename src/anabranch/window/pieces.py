"""Columns as the bytes of a piece of state, and back, to the bit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.snapshot.state import Piece
from anabranch.window.panes import Ints

_POSITION = "_position"
Pack = Callable[[Any], bytes]
Unpack = Callable[[bytes], Any]
Values = npt.NDArray[Any]
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


def table_to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def bytes_to_table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def tuples_piece(table: pa.Table, positions: Ints) -> Piece:
    """Tuples with their positions."""
    return Piece(table, lambda: table_to_bytes(table.append_column(_POSITION, pa.array(positions))))


def tuples_of(data: bytes) -> tuple[pa.Table, Ints]:
    table = bytes_to_table(data)
    positions: Ints = table.column(_POSITION).to_numpy().astype(np.int64, copy=True)
    return table.drop_columns([_POSITION]), positions


def to_arrays(columns: Sequence[Values], pack: Pack = pickle.dumps) -> list[pa.Array]:
    """Numbers as they are, Python's objects one by one."""
    return [
        pa.array([pack(one) for one in column], pa.large_binary())
        if column.dtype == object
        else pa.array(column)
        for column in columns
    ]


def from_arrays(
    columns: Sequence[pa.ChunkedArray], dtypes: Sequence[str], unpack: Unpack = pickle.loads
) -> list[Values]:
    arrays_: list[Values] = []
    for column, dtype in zip(columns, dtypes, strict=True):
        if np.dtype(dtype) == object:
            values: Values = np.empty(len(column), object)
            values[:] = [unpack(one) for one in column.to_pylist()]
            arrays_.append(values)
        else:
            arrays_.append(column.to_numpy().astype(dtype, copy=True))
    return arrays_
