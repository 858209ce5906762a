"""What must be in the tables, computed in plain Python from what is in Kafka."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bench.shop.sales import STORES, Sale

WIDTH_MS = 10_000
Row = tuple[Any, ...]
COLUMNS = {
    **{f"large_{store}": "id, cents" for store in STORES},
    **{f"revenue_{store}": "product, cents, sales, window_start" for store in STORES},
    "named": "id, name",
    "revenue": "store, product, cents, sales, window_start",
    "best": "store, product, place, begun",
    "so_far": "store, cents, sales, window_end",
    "totals": "id, store, cents",
}
"""Of each table those that are compared."""


def expected(sales: Mapping[str, Sequence[Sale]]) -> dict[str, Counter[Row]]:
    """The rows of each table once all windows have ended, and how often each is there. `sales` are
    each store's in the order of its topic."""
    everything = [sale for store in STORES for sale in sales[store]]
    revenue = list(_revenue(everything))
    return {
        **{
            f"large_{store}": Counter((s.id, s.cents) for s in sales[store] if s.cents > 5000)
            for store in STORES
        },
        **{
            f"revenue_{store}": Counter(row[1:] for row in revenue if row[0] == store)
            for store in STORES
        },
        "named": Counter((sale.id, f"product {sale.product}") for sale in everything),
        "revenue": Counter(revenue),
        "best": Counter(_best(revenue)),
        "so_far": Counter(_so_far(everything)),
        "totals": Counter(_totals(everything)),
    }


def _begin(sale: Sale) -> int:
    return sale.ts // WIDTH_MS * WIDTH_MS


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _revenue(sales: Iterable[Sale]) -> Iterator[Row]:
    windows: dict[Row, list[int]] = defaultdict(list)
    for sale in sales:
        windows[_begin(sale), sale.store, sale.product].append(sale.cents * sale.quantity)
    for (begin, store, product), cents in windows.items():
        yield store, product, sum(cents), len(cents), _time(begin)


def _best(revenue: Iterable[Row]) -> Iterator[Row]:
    windows: dict[Row, list[Row]] = defaultdict(list)
    for store, product, cents, _, begun in revenue:
        windows[begun, store].append((-cents, product))
    for (begun, store), ranked in windows.items():
        for place, (_, product) in enumerate(sorted(ranked)[:3], 1):
            yield store, product, place, begun


def _so_far(sales: Sequence[Sale]) -> Iterator[Row]:
    """Up to the end of the window in which the last sale is."""
    cents, count = Counter[str](), Counter[str]()
    by_window: dict[int, list[Sale]] = defaultdict(list)
    for sale in sales:
        by_window[_begin(sale)].append(sale)
    first, last = min(by_window), max(by_window)
    for begin in range(first, last + WIDTH_MS, WIDTH_MS):
        for sale in by_window[begin]:
            cents[sale.store] += sale.cents * sale.quantity
            count[sale.store] += 1
        for store in count:
            yield store, cents[store], count[store], _time(begin + WIDTH_MS)


def _totals(sales: Iterable[Sale]) -> Iterator[Row]:
    cents = Counter[str]()
    for sale in sales:
        cents[sale.store] += sale.cents * sale.quantity
        yield sale.id, sale.store, cents[sale.store]


def differences(expected: Counter[Row], got: Counter[Row]) -> dict[str, int]:
    """Rows that are missing, that are there more than once, and that should not be there."""
    return {
        "missing": len(expected.keys() - got.keys()),
        "twice": sum(1 for row, count in got.items() if count > expected[row] > 0),
        "wrong": len(got.keys() - expected.keys()),
    }
