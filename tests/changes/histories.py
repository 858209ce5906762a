"""Random changes of tables, and what is left after them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from anabranch.changes.change import OP, changes
from tests.spark.comparing import content

Row = dict[str, Any]


class History:
    """Tables that change at random. `batch` gives changes and makes them in `tables`."""

    def __init__(
        self,
        seed: int,
        schemas: Mapping[str, pa.Schema],
        make: Callable[[random.Random, str], Row],
    ) -> None:
        self._dice = random.Random(seed)
        self._make = make
        self._schemas = schemas
        self._rows: dict[str, list[Row]] = {name: [] for name in schemas}

    def batch(self, inserted: int, deleted: int) -> dict[str, pa.Table]:
        return {name: self._changed(name, inserted, deleted) for name in self._schemas}

    def _changed(self, name: str, inserted: int, deleted: int) -> pa.Table:
        rows, schema = self._rows[name], self._schemas[name]
        come = [self._make(self._dice, name) for _ in range(inserted)]
        there = rows + come
        gone = set(self._dice.sample(range(len(there)), min(deleted, len(there))))
        self._rows[name] = [row for i, row in enumerate(there) if i not in gone]
        return changes(
            pa.Table.from_pylist([there[i] for i in sorted(gone)], schema),
            pa.Table.from_pylist(come, schema),
        )

    def clear(self) -> dict[str, pa.Table]:
        return self.batch(0, 1_000_000)

    @property
    def tables(self) -> dict[str, pa.Table]:
        return {
            name: pa.Table.from_pylist(self._rows[name], schema)
            for name, schema in self._schemas.items()
        }


class Result:
    """What changes have led to. None deletes what is not there."""

    def __init__(self) -> None:
        self.content: Counter[str] = Counter()

    def add(self, changed: pa.Table) -> None:
        for op in ("delete", "insert"):
            some = changed.filter(pa.compute.equal(changed.column(OP), op)).drop_columns([OP])
            if op == "insert":
                self.content += content(some)
            else:
                assert content(some) <= self.content
                self.content -= content(some)
