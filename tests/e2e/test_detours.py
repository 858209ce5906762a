"""What errors and docs tell one to write instead of what is not supported gives the right rows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator

from bench.systems.system import System, read_jsonl

WIDTH_S = 10
Sale = tuple[int, str, int]
"""Its second, store and price."""


def sales(system: System, seed: int) -> list[Sale]:
    rng = random.Random(seed)
    made = [
        (second, rng.choice("abcd"), rng.randint(1, 6))
        for second in range(65)
        for _ in range(rng.randint(0, 4))
    ]
    lines = [
        f"1970-01-02T00:{second // 60:02}:{second % 60:02}Z,{store},{price}"
        for second, store, price in made
    ]
    (system.folder / "sales.csv").write_text("\n".join(["ts,store,price", *lines, ""]))
    system.execute(
        "CREATE STREAM sales (store STRING, price BIGINT) TIMESTAMP ts"
        " FROM file(path = 'sales.csv') AT room1"
    )
    return made


def windows(made: list[Sale]) -> Iterator[list[Sale]]:
    by_window: dict[int, list[Sale]] = defaultdict(list)
    for one in made:
        by_window[one[0] // WIDTH_S].append(one)
    return iter(by_window.values())


def test_each_value_once(system: System) -> None:
    made = sales(system, 1)
    system.run(
        "CREATE QUERY each AS SELECT store, price FROM sales[10s] GROUP BY store, price;"
        "CREATE QUERY sums AS SELECT store, sum(price) AS s, avg(price) AS a FROM each[1us]"
        " GROUP BY store INTO jsonl(path = 'sums.jsonl');"
    )
    expected = Counter[tuple[str, int, float]]()
    for window in windows(made):
        for store in {one[1] for one in window}:
            once = {one[2] for one in window if one[1] == store}
            expected[store, sum(once), sum(once) / len(once)] += 1
    rows = read_jsonl(system.folder / "sums.jsonl")
    assert Counter((row["store"], row["s"], row["a"]) for row in rows) == expected


def test_the_best_two(system: System) -> None:
    made = sales(system, 2)
    system.run(
        "CREATE QUERY totals AS SELECT store, sum(price) AS total FROM sales[10s] GROUP BY store;"
        "CREATE QUERY ranked AS SELECT a.store, a.total FROM totals[1us] AS a, totals[1us] AS b"
        " WHERE b.total > a.total OR (b.total = a.total AND b.store <= a.store);"
        "CREATE QUERY best AS SELECT store, max(total) AS total, count(*) AS place"
        " FROM ranked[1us] GROUP BY store HAVING count(*) <= 2 INTO jsonl(path = 'best.jsonl');"
    )
    expected = Counter[tuple[str, int, int]]()
    for window in windows(made):
        totals = Counter[str]()
        for _, store, price in window:
            totals[store] += price
        ranked = sorted(totals.items(), key=lambda one: (-one[1], one[0]))[:2]
        expected.update((store, total, place) for place, (store, total) in enumerate(ranked, 1))
    rows = read_jsonl(system.folder / "best.jsonl")
    assert Counter((row["store"], row["total"], row["place"]) for row in rows) == expected
