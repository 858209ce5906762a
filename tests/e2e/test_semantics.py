"""Random queries over random streams, through real sites, against the plain meaning of a query."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.plan.windows import Range, Rows, Window
from bench.systems.system import System, read_jsonl
from tests.window.naive import Tuple, Values, evaluate

SITES = {"A": "room1", "B": "room1", "C": "room2"}
LATENESS_US = 3
QUERIES = 7
"""Per script; five scripts make 35 cases."""
Row = dict[str, Any]


def write_stream(path: Path, rng: random.Random) -> list[Tuple]:
    """Up to 40 tuples: out of order, with equal times and NULLs; sometimes none at all."""
    rows: list[Row] = []
    now = 0
    for number in range(1, rng.choice([0, 8, 25, 40]) + 1):
        now += rng.choice([0, 0, 1, 1, 2, 6])
        k, v = rng.choice([None, 1, 2, 3]), rng.choice([None, *map(float, range(6))])
        rows.append({"id": number, "k": k, "v": v, "ts": now - rng.randint(0, LATENESS_US)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [Tuple(row["id"], row["ts"], row) for row in rows]


@dataclass(frozen=True)
class Query:
    """A query as text, and what it means."""

    text: str
    streams: list[str]
    windows: list[Window]
    masters: list[int]
    holds: Callable[[list[Values]], bool]


def a_query(rng: random.Random) -> Query:
    streams = [rng.choice("ABC") for _ in range(rng.choice([1, 2, 2, 3]))]
    aliases = [f"i{n}" for n in range(len(streams))]
    windows = [_window(rng) for _ in streams]
    masters = rng.sample(range(len(streams)), rng.randint(1, len(streams)))
    named = rng.random() < 0.7
    if not named:
        masters = list(range(len(streams)))
    asked = [_condition(rng, len(streams)) for _ in range(rng.randint(0, 3))]
    items = ", ".join(f"{alias}.id AS {alias}" for alias in aliases)
    sources = ", ".join(
        f"{stream}{_written(window)} {alias}"
        for stream, window, alias in zip(streams, windows, aliases, strict=True)
    )
    text = f"MASTER {', '.join(aliases[m] for m in masters)} " if named else ""
    text += f"SELECT {items} FROM {sources}"
    if asked:
        text += " WHERE " + " AND ".join(condition for condition, _ in asked)
    return Query(text, streams, windows, masters, lambda v: all(holds(v) for _, holds in asked))


def _window(rng: random.Random) -> Window:
    if rng.random() < 0.3:
        return Rows(count=rng.randint(1, 4))
    return Range(width_us=rng.randint(1, 9))


def _written(window: Window) -> str:
    return f"[{window.count} ROWS]" if isinstance(window, Rows) else f"[{window.width_us}us]"  # type: ignore[union-attr]


def _condition(rng: random.Random, inputs: int) -> tuple[str, Callable[[list[Values]], bool]]:
    i, j = rng.randrange(inputs), rng.randrange(inputs)
    least = float(rng.randint(0, 3))

    def known(*values: Any) -> bool:
        return None not in values

    return rng.choice(
        [
            (f"i{i}.k = i{j}.k", lambda v: known(v[i]["k"], v[j]["k"]) and v[i]["k"] == v[j]["k"]),
            (f"i{i}.v < i{j}.v", lambda v: known(v[i]["v"], v[j]["v"]) and v[i]["v"] < v[j]["v"]),
            (f"i{i}.v > {least}", lambda v: known(v[i]["v"]) and v[i]["v"] > least),
            (
                f"(i{i}.k IS NULL OR i{j}.v <= {least})",
                lambda v: v[i]["k"] is None or (known(v[j]["v"]) and v[j]["v"] <= least),
            ),
        ]
    )


@pytest.mark.parametrize("seed", range(5))
def test_queries_mean_what_they_say(system: System, seed: int) -> None:
    rng = random.Random(seed)
    streams = {name: write_stream(system.folder / f"{name}.jsonl", rng) for name in SITES}
    queries = [a_query(rng) for _ in range(QUERIES)]
    script = "".join(
        f"CREATE STREAM {name} (id BIGINT, k INT, v DOUBLE) TIMESTAMP ts LATENESS {LATENESS_US}us"
        f" FROM file(path = '{name}.jsonl', speed = 'max') AT {site};\n"
        for name, site in SITES.items()
    )
    script += "".join(
        f"CREATE QUERY q{n} AS {query.text} INTO jsonl(path = 'q{n}.jsonl')"
        f" AT {rng.choice(['room1', 'room2', 'centre'])};\n"
        for n, query in enumerate(queries)
    )
    system.run(script, timeout_s=150)
    for n, query in enumerate(queries):
        expected = evaluate(
            [streams[name] for name in query.streams], query.windows, query.masters, query.holds
        )
        found = read_jsonl(system.folder / f"q{n}.jsonl")
        rows = [
            (row["_ts"], tuple(row[f"i{i}"] for i in range(len(query.streams)))) for row in found
        ]
        assert rows == [(one.ts, one.positions) for one in expected], query.text
        assert [row["_pos"] for row in found] == list(range(1, len(found) + 1))
