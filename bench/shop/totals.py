"""A pocket that remembers: what each store has taken so far."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from anabranch import Pocket


class Total(Pocket):
    query = "SELECT id, store, cents, quantity FROM sales"
    output = "CREATE STREAM takings (id BIGINT, store STRING, cents BIGINT)"
    site = "office"

    def open(self) -> None:
        self.cents = defaultdict[str, int](int)

    def row(self, row: dict[str, Any]) -> Iterator[tuple[int, str, int]]:
        self.cents[row["store"]] += row["cents"] * row["quantity"]
        yield row["id"], row["store"], self.cents[row["store"]]
