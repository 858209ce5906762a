"""Changes of a table: its rows and, in one more column, what became of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.window.codes import codes_of, first_of_each

OP = "_op"
INSERT, DELETE = "insert", "delete"
OP_FIELD = pa.field(OP, pa.string())


def changes(deleted: pa.Table, inserted: pa.Table) -> pa.Table:
    """First what goes, then what comes, each in its order."""
    ops = [DELETE] * len(deleted) + [INSERT] * len(inserted)
    return pa.concat_tables([deleted, inserted]).append_column(
        OP_FIELD, [pa.array(ops, OP_FIELD.type)]
    )


def deleted_of(changed: pa.Table) -> pa.Table:
    return _only(changed, DELETE)


def inserted_of(changed: pa.Table) -> pa.Table:
    return _only(changed, INSERT)


def _only(changed: pa.Table, op: str) -> pa.Table:
    return changed.filter(pc.equal(changed.column(OP), op)).drop_columns([OP])


def difference(before: pa.Table, after: pa.Table) -> pa.Table:
    """What makes `after` of `before`, as multisets of rows. Of several rows that are the same the
    first ones stay."""
    codes = same_rows([before, after])
    rank, counts_before, counts_after = _ranks(codes, len(before))
    stays = rank < np.minimum(counts_before, counts_after)[codes]
    goes, comes = ~stays[: len(before)], ~stays[len(before) :]
    return changes(before.filter(pa.array(goes)), after.filter(pa.array(comes)))


def same_rows(tables: list[pa.Table]) -> np.ndarray:
    """Dense numbers of the rows of all `tables`, one after the other; the same for the same row.
    (Rows whose bits differ, as -0.0 and 0.0 do, are two; NaN is NaN.)"""
    whole = pa.concat_tables(tables)
    return first_of_each(codes_of(whole.columns, len(whole), grouped=False))[0]


def _ranks(codes: np.ndarray, border: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row the number of equal rows before it on its side of the border; and how many there
    are of each code on either side.
    """
    size = int(codes.max(initial=-1)) + 1
    sides = codes[:border], codes[border:]
    counts = [np.bincount(side, minlength=size) for side in sides]
    return np.concatenate([occurrence(side) for side in sides]), counts[0], counts[1]


def occurrence(codes: np.ndarray) -> np.ndarray:
    """How many of the same code stand in front of each."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rank = np.empty(len(codes), np.int64)
    lengths = np.diff(np.append(starts, len(codes)))
    rank[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return rank
