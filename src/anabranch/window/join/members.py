"""The tuples of one input that may still take part in a result, found by the hash of their key.

Rows are in the order of (event time, position), so they fall in three groups: first the old ones,
which have been evaluated with each other; then the fresh ones, which the present instants bring in;
then those after the newest instant, which wait for the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.plan.windows import Rows, TableWindow, Window
from anabranch.snapshot.state import Piece
from anabranch.stream.batch import BORN, EVENT_TIME, POSITION, START_WATERMARK
from anabranch.window.arrays import (
    I64,
    MERGED_AT,
    U64,
    Carried,
    Growing,
    Mask,
    combined,
    hashed,
    valid,
)
from anabranch.window.join import lifetimes
from anabranch.window.join.buffer import Closed
from anabranch.window.join.lifetimes import FOREVER
from anabranch.window.pieces import bytes_to_table, table_to_bytes


@dataclass(frozen=True)
class IndexSegment:
    """Rows by ascending key hash; rows with the same hash keep their own order."""

    hashes: U64
    rows: I64

    @classmethod
    def of(cls, hashes: U64, rows: I64) -> IndexSegment:
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], rows[order])

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, mask: Mask) -> IndexSegment:
        return self if mask.all() else IndexSegment(self.hashes[mask], self.rows[mask])

    def find(self, sorted_hashes: U64) -> tuple[I64, I64, I64]:
        """Which of the hashes are here; for each of those, its first place and the number of its
        rows.
        """
        low = np.searchsorted(self.hashes, sorted_hashes)
        hit = np.flatnonzero(self.hashes[np.minimum(low, len(self) - 1)] == sorted_hashes)
        high = np.searchsorted(self.hashes, sorted_hashes[hit], side="right")
        return hit, low[hit], high - low[hit]


class Index:
    """An index of one input on `columns`. The rows that are being evaluated are separate until they
    are settled.
    """

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._segments: list[IndexSegment] = []
        self._fresh: IndexSegment | None = None

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def add(self, hashes: U64, rows: I64) -> None:
        self._fresh = IndexSegment.of(hashes, rows) if len(rows) else None

    def segments(self, fresh: bool) -> Iterator[IndexSegment]:
        yield from self._segments
        if fresh and self._fresh is not None:
            yield self._fresh

    def settle(self, ends: I64, horizon: int) -> None:
        """Makes fresh rows old. Merging drops rows that end at `horizon` or before."""
        if self._fresh is None:
            return
        segments = self._segments
        segments.append(self._fresh)
        self._fresh = None
        while len(segments) > 1 and len(segments[-2]) <= MERGED_AT * len(segments[-1]):
            alive = [segment.only(ends[segment.rows] > horizon) for segment in segments[-2:]]
            segments[-2:] = [_merged(alive)]
        if not len(segments[-1]):
            segments.pop()

    def renumber(self, alive: Mask, numbers: I64) -> None:
        """Removes rows that are not `alive`; the others have new numbers, in the same order."""
        kept = (segment.only(alive[segment.rows]) for segment in self._segments)
        self._segments = [IndexSegment(s.hashes, numbers[s.rows]) for s in kept if len(s)]


def _merged(segments: Sequence[IndexSegment]) -> IndexSegment:
    # A stable sort of two ascending runs is a merge, and keeps older rows first.
    return IndexSegment.of(
        np.concatenate([segment.hashes for segment in segments]),
        np.concatenate([segment.rows for segment in segments]),
    )


_SWEEP_PER_ROW = 16
_SWEEP_PER_STEP = 8192
"""How many rows may be looked at for being over, for each new row and for each step: so sweeping
costs the same per tuple and step however large the window is."""


OWN = {POSITION: "pos", EVENT_TIME: "ts", BORN: "born"}
"""The columns that are not carried but computed with."""


@dataclass(frozen=True)
class _Block:
    """Rows that were kept as one piece: what is left of it are those from `first` to `stop`."""

    first: int
    stop: int
    piece: Piece

    def __len__(self) -> int:
        return self.stop - self.first


@dataclass
class _Content:
    """Rows as they were when their block was made; nothing once they are written."""

    closed: Closed | None

    def to_bytes(self) -> bytes:
        assert self.closed
        return _closed_bytes(self.closed)

    def written(self) -> None:
        self.closed = None


def closed_piece(closed: Closed) -> Piece:
    """Tuples of an input, which are never changed."""
    return Piece(closed, lambda: _closed_bytes(closed))


def _closed_bytes(closed: Closed) -> bytes:
    arrays = [pa.array(closed.pos), pa.array(closed.ts), pa.array(closed.born), *closed.columns]
    return table_to_bytes(pa.table(arrays, names=list(map(str, range(len(arrays))))))


def closed_of(data: bytes) -> Closed:
    columns = [column.combine_chunks() for column in bytes_to_table(data).columns]
    pos, ts, born = (column.to_numpy(zero_copy_only=False).copy() for column in columns[:3])
    return Closed(pos, ts, born, columns[3:])


class Members:
    """`columns` are carried along; `keys` those of them that an index needs."""

    def __init__(
        self, window: Window, schema: pa.Schema, columns: list[str], keys: set[str]
    ) -> None:
        self.window = window
        own = lifetimes.own_column(window)
        self.columns = sorted({*columns, *keys, *([own] if own else [])} - set(OWN))
        self._own = self.columns.index(own) if own else None
        self._keys = sorted(keys)
        numbers = dict.fromkeys(("pos", "ts", "born", "end", "at"), np.int64)
        self._hash = {key: f"hash {key}" for key in self._keys}
        self._valid = {key: f"valid {key}" for key in self._keys}
        self._rows = Growing(
            {
                **numbers,
                "ok": np.bool_,
                **dict.fromkeys(self._hash.values(), np.uint64),
                **dict.fromkeys(self._valid.values(), np.bool_),
            }
        )
        self._carried = Carried([schema.field(name).type for name in self.columns])
        self._blocks: list[_Block] = []
        """The rows that were kept, in their order; those behind the last block were not yet."""
        self._indexes: dict[tuple[str, ...], Index] = {}
        self._credit = 0
        self._lowest = FOREVER
        self.old = 0
        self.fresh = 0
        """Rows up to `old` are old, from there to `fresh` fresh."""

    def __len__(self) -> int:
        return self._rows.size

    @property
    def lowest(self) -> int | None:
        """The lowest position that is still needed (as of the last sweep)."""
        return None if self._lowest == FOREVER else self._lowest

    @property
    def ts(self) -> I64:
        return self._rows["ts"]

    @property
    def end(self) -> I64:
        return self._rows["end"]

    @property
    def at(self) -> I64:
        """The instant that brings a fresh row in; for an old row, a time long ago."""
        return self._rows["at"]

    @property
    def ok(self) -> Mask:
        """False if the row is known to violate a condition on its input alone."""
        return self._rows["ok"]

    @property
    def row_bytes(self) -> float:
        return self._carried.nbytes / max(1, len(self))

    @property
    def nbytes(self) -> int:
        indexed = sum(len(index) for index in self._indexes.values())
        return self._rows.nbytes + self._carried.nbytes + 16 * indexed

    def index(self, columns: tuple[str, ...]) -> Index:
        """The index on these columns. Ask for it before there are rows."""
        return self._indexes.setdefault(columns, Index(columns))

    def append(self, closed: Closed) -> None:
        window, removed, when = self.window, None, None
        if isinstance(window, TableWindow) and self._own is not None:
            closed, removed, when = lifetimes.split_removals(closed, self._own)
        if count := len(closed):
            values = {"pos": closed.pos, "ts": closed.ts, "born": closed.born}
            ends = lifetimes.first_ends(window, closed, self._own)
            keys: dict[str, U64 | Mask] = {}
            for key in self._keys:
                column = self._closed_column(closed, key)
                keys |= {self._hash[key]: hashed(column), self._valid[key]: valid(column)}
            fixed = {"at": START_WATERMARK, "ok": True}
            self._rows.append({**values, **keys, **fixed, "end": ends}, count)
            self._carried.append(closed.columns, count)
            self._lowest = min(self._lowest, int(closed.pos.min()))
            self._credit += _SWEEP_PER_ROW * count
        if isinstance(window, Rows):
            lifetimes.end_by_count(self.ts, self.end, window.count, new=len(closed))
        if removed is not None and when is not None:
            lifetimes.end_removed(self._rows["pos"], self.ts, self.end, removed, when)

    def _closed_column(self, closed: Closed, name: str) -> pa.Array:
        if name in OWN:
            return pa.array(getattr(closed, OWN[name]))
        return closed.columns[self.columns.index(name)]

    def snapshot(self) -> list[Piece]:
        """All rows, most of them in pieces that were given before. Pieces may also hold rows that
        have ended since. Where ends change, the last piece has those of the rows that are left."""
        first = self._blocks[-1].stop if self._blocks else 0
        while self._blocks and len(self._blocks[-1]) <= MERGED_AT * (len(self) - first):
            first = self._blocks.pop().first
        if first < len(self):
            content = _Content(self._closed(first))
            piece = Piece(content, content.to_bytes, content.written)
            self._blocks.append(_Block(first, len(self), piece))
        pieces = [block.piece for block in self._blocks]
        return [*pieces, self._ends()] if self._ends_change else pieces

    @property
    def _ends_change(self) -> bool:
        return isinstance(self.window, Rows | TableWindow)

    def _closed(self, first: int) -> Closed:
        """The rows from `first` on, as they were appended."""
        pos, ts, born = (self._rows[name][first:].copy() for name in ("pos", "ts", "born"))
        rows = np.arange(first, len(self))
        return Closed(pos, ts, born, self._carried.take(range(len(self.columns)), rows))

    def _ends(self) -> Piece:
        arrays = [pa.array(self._rows[name].copy()) for name in ("pos", "end")]
        return Piece(arrays, lambda: table_to_bytes(pa.table(arrays, names=["pos", "end"])))

    def restore(self, pieces: Sequence[bytes]) -> None:
        """Before there are any rows: those of a snapshot."""
        blocks = pieces[:-1] if self._ends_change else pieces
        for block in blocks:
            self.append(closed_of(block))
        if self._ends_change:
            table = bytes_to_table(pieces[-1])
            self._drop(np.isin(self._rows["pos"], table.column("pos").to_numpy()))
            self.end[:] = table.column("end").to_numpy()

    def begin(self, upto: int, times: I64) -> None:
        """Makes rows up to the time `upto` fresh, with the first of `times` not before them."""
        self.fresh = int(np.searchsorted(self.ts, upto, side="right"))
        new = slice(self.old, self.fresh)
        if new.start < new.stop:
            self.at[new] = times[np.searchsorted(times, self.ts[new])]

    def alive(self) -> I64:
        """The fresh rows that take part when they come in."""
        new = slice(self.old, self.fresh)
        return self.old + np.flatnonzero((self.at[new] < self.end[new]) & self.ok[new])

    def enter(self, rows: I64) -> None:
        """Puts fresh rows into the indexes."""
        for index in self._indexes.values():
            hashes, known = self.key(index.columns, rows)
            index.add(hashes[known], rows[known])

    def settle(self, horizon: int) -> None:
        """Makes fresh rows old. All instants before `horizon` have been evaluated."""
        self.at[self.old : self.fresh] = START_WATERMARK
        self.old = self.fresh
        for index in self._indexes.values():
            index.settle(self.end, horizon)

    def sweep(self, horizon: int) -> None:
        """Drops ended rows, if it is time to look; no instant before `horizon` is to come."""
        self._credit += _SWEEP_PER_STEP
        if self._credit < len(self) or not len(self):
            return
        self._credit = 0
        alive = self.end > horizon
        if not isinstance(self.window, Rows):  # those count even so
            alive &= self.ok
        left = self._rows["pos"][alive]
        self._lowest = int(left.min()) if len(left) else FOREVER
        if 2 * len(left) <= len(self):
            self._drop(alive)

    def _drop(self, alive: Mask) -> None:
        numbers = np.cumsum(alive) - 1
        for index in self._indexes.values():
            index.renumber(alive, numbers)
        self.old = self.fresh = int(np.count_nonzero(alive[: self.old]))
        left = np.concatenate([[0], np.cumsum(alive)]).tolist()
        blocks = (replace(one, first=left[one.first], stop=left[one.stop]) for one in self._blocks)
        self._blocks = [block for block in blocks if len(block)]
        self._rows.keep(alive)
        self._carried.keep(alive)

    def key(self, columns: tuple[str, ...], rows: I64) -> tuple[U64, Mask]:
        """The hashes of rows on `columns`, and which have no NULL there."""
        hashes = combined([self._rows[self._hash[key]][rows] for key in columns])
        known = np.ones(len(rows), np.bool_)
        for key in columns:
            known &= self._rows[self._valid[key]][rows]
        return hashes, known

    def numbers(self, name: str, rows: I64) -> I64:
        """A column of whole numbers of the given rows."""
        if name in OWN:
            numbers: I64 = self._rows[OWN[name]][rows]
        else:
            numbers = self.take([name], rows)[0].to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers

    def take(self, names: Sequence[str], rows: I64) -> list[pa.Array]:
        """Columns of the given rows."""
        carried = [self.columns.index(name) for name in names if name not in OWN]
        columns = iter(self._carried.take(carried, rows))
        return [
            pa.array(self._rows[OWN[name]][rows]) if name in OWN else next(columns)
            for name in names
        ]
