"""What window aggregates hold, in pieces: partial aggregates with their keys by value."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from anabranch.snapshot.state import Piece
from anabranch.window.aggregate.calls import Custom
from anabranch.window.aggregate.keys import Keys, Seen, frozen
from anabranch.window.aggregate.state import Columns, Layout, Part
from anabranch.window.pieces import (
    bytes_to_table,
    from_arrays,
    table_to_bytes,
    to_arrays,
)


def part_piece(part: Part, keys: Keys, layout: Layout) -> Piece:
    """A part is never changed, but the number of a key may be another's later: so the keys are
    taken now."""
    return Piece(part, partial(_part_bytes, keys.columns(part.ids), part, layout))


def _part_bytes(keys: Sequence[pa.ChunkedArray], part: Part, layout: Layout) -> bytes:
    columns = list(keys)
    for cell in layout.cells:
        pack = cell.pack if isinstance(cell, Custom) else pickle.dumps
        columns += to_arrays(layout.of(cell, part.columns), pack)
    return table_to_bytes(pa.table(columns, names=list(map(str, range(len(columns))))))


def part_of(data: bytes, keys: Keys, layout: Layout) -> Part:
    """The part with the numbers that its keys have now; they are held once for it."""
    table = bytes_to_table(data)
    own = table.num_columns - len(layout.dtypes)
    columns: Columns = []
    for cell in layout.cells:
        unpack = cell.unpack if isinstance(cell, Custom) else pickle.loads
        held = layout.of(cell, table.columns[own:])
        columns += from_arrays(held, cell.dtypes, unpack)
    ids = keys.number(table.columns[:own], len(table))
    keys.hold(ids)
    return Part(ids, columns)


def seen_piece(of: object, seen: Sequence[Seen], keys: Keys) -> Piece:
    """The values that occurred in a pane, each with its key."""
    columns = keys.columns(np.array([key for key, _ in seen], np.int64))
    return Piece(of, partial(_seen_bytes, columns, seen))


def _seen_bytes(keys: Sequence[pa.ChunkedArray], seen: Sequence[Seen]) -> bytes:
    values = np.empty(len(seen), object)
    values[:] = [value for _, value in seen]
    columns = [*keys, *to_arrays([values], pickle.dumps)]
    return table_to_bytes(pa.table(columns, names=list(map(str, range(len(columns))))))


def seen_of(data: bytes, keys: Keys) -> list[Seen]:
    table = bytes_to_table(data)
    *own, values = table.columns
    numbers = keys.number(own, len(table)).tolist()
    values_ = (frozen(pickle.loads(one)) for one in values.to_pylist())
    return list(zip(numbers, values_, strict=True))
