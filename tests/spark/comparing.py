"""What tables have in them, whatever the order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from anabranch.window.aggregate.cells import as_int


def content(table: pa.Table) -> Counter[str]:
    """Its rows as a multiset. Sums of doubles depend on the order of the rows, so doubles count to
    nine digits."""
    columns = [
        as_int(c).to_pylist() if pa.types.is_temporal(c.type) else c.to_pylist()
        for c in table.columns
    ]
    return Counter(repr([_plain(value) for value in row]) for row in zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value
