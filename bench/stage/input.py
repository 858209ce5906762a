"""The state paper's workload: tuples (timestamp, key, value) with keys uniform or by Zipf's law."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Aggregate, AggregateCall, Call, Column, Item
from anabranch.plan.stage import Stage, StageInput
from anabranch.plan.windows import TimePanes

ROWS_PER_FILE = 1_000_000
STEP_US = 10
"""Between two tuples."""
LONG_US = 86_400_000_000
"""The paper's one large window."""


@dataclass(frozen=True)
class Workload:
    """`input` is 'parquet' or 'text'; `zipf` 1.0 stands for uniform keys, as in the paper."""

    input: str
    keys: int
    zipf: float
    files: int
    rows_per_file: int = ROWS_PER_FILE
    passes: int = 1
    """How often all files are there, under other names: what is read takes longer to come."""

    @property
    def rows(self) -> int:
        return self.passes * self.files * self.rows_per_file

    @property
    def suffix(self) -> str:
        return "parquet" if self.input == "parquet" else "csv"

    def write(self, folder: Path) -> Path:
        """The folder with its files; made once."""
        if self.passes > 1:
            return self._linked(replace(self, passes=1).write(folder))
        target = folder / f"{self.input}-{self.keys}-{self.zipf}-{self.files}"
        if not target.exists():
            target.mkdir()
            draw = np.random.default_rng(self.keys)
            for number in range(self.files):
                table = self._table(draw, number)
                if self.input == "parquet":
                    pq.write_table(table, target / f"{number:03}.parquet")
                else:
                    pa_csv.write_csv(table, target / f"{number:03}.csv")
        return target

    def _linked(self, once: Path) -> Path:
        target = once.with_name(f"{once.name}-{self.passes}")
        if not target.exists():
            target.mkdir()
            for number in range(self.passes):
                for file in once.iterdir():
                    os.link(file, target / f"{number:04}-{file.name}")
        return target

    def _table(self, draw: np.random.Generator, number: int) -> pa.Table:
        rows = self.rows_per_file
        return pa.table(
            {
                "ts": (np.arange(rows) + number * rows) * STEP_US,
                "key": _keys(draw, self.keys, self.zipf, rows),
                "value": draw.integers(0, 101, rows),
            }
        )


def _keys(draw: np.random.Generator, keys: int, zipf: float, rows: int) -> np.ndarray:
    if zipf == 1.0:
        return draw.integers(0, keys, rows)
    weights = np.arange(1, keys + 1, dtype=float) ** -zipf
    chances = np.cumsum(weights) / weights.sum()
    return np.searchsorted(chances, draw.random(rows)).astype(np.int64)


def stage_over(
    folder: Path, width_us: int = LONG_US, slide_us: int = LONG_US, lateness_us: int = 0
) -> Stage:
    """sum(value) by key over the files in `folder`. With a lateness of a day, event times may
    begin anew with each pass."""
    columns = (Column(name="key", type="bigint"), Column(name="value", type="bigint"))
    key, value = Expr.of("r", "key"), Expr.of("r", "value")
    return Stage(
        input=StageInput(
            stream="r",
            columns=columns,
            source=Call(name="file", options={"path": str(folder)}),
            timestamp="ts",
            lateness_us=lateness_us,
        ),
        aggregate=Aggregate(
            panes=TimePanes(width_us=width_us, slide_us=slide_us),
            keys=(Item(expr=key, name="key", type="bigint"),),
            calls=(AggregateCall(function="SUM", arguments=(value,), name="_agg0", type="bigint"),),
        ),
    )
