"""The standby experiment's stream and queries, and what must come out of them.

Values are multiples of small powers of two, as sensors give them: sums are exact in any order, so
that a reference in numpy can be compared bit by bit, and zlib has something to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from anabranch.errors import TaskError

TPS = 1_000
EVERY = "200ms"
"""So many tuples come at once: with 20 ms two cores would run one Spark job after another."""
START_US = 1_700_000_000_000_000
NAMES = ("id", "timestamp", "temperature", "illuminance", "x", "y", "z")
WIDTH, SLIDE = 100, 10
_SENSORS = {
    "temperature": (20, 37, 256, 64),
    "illuminance": (300, 91, 512, 8),
    "x": (-1, 7919, 1024, 512),
    "y": (-1, 104_729, 1024, 512),
    "z": (-1, 1_299_709, 1024, 512),
}
"""Column → a, b, c, d of a + (n · b mod c)/d."""
SENSORS = {name: f"{a} + (value * {b} % {c}) / {d}D" for name, (a, b, c, d) in _SENSORS.items()}
"""The same for Spark, over `value`, which is n."""
_OPTIONS = ", ".join(f"{name} = '{text}'" for name, text in SENSORS.items())
STREAM = f"""
CREATE STREAM r (id BIGINT, timestamp BIGINT, temperature DOUBLE, illuminance DOUBLE,
                 x DOUBLE, y DOUBLE, z DOUBLE)
  FROM rate(tps = {{tps}}, every = '{EVERY}', start = {START_US},
            id = 'value', timestamp = 'ts', {_OPTIONS})
  AT {{source}};
"""
Columns = list[np.ndarray]


@dataclass(frozen=True)
class Operator:
    """A query over the stream; `expected(n)` are the columns of its outputs from n tuples."""

    name: str
    query: str
    expected: Callable[[int], Columns]
    inputs: Callable[[int], int]
    """How many tuples so many outputs take."""

    def script(self, source: str, standby: str, tps: float = TPS) -> str:
        return STREAM.format(tps=tps, source=source) + self.query.format(standby=standby)


def values(count: int) -> Columns:
    """The stream's first tuples, by column."""
    n = np.arange(count, dtype=np.int64)
    sensors = [a + (n * b % c) / d for a, b, c, d in _SENSORS.values()]
    return [n, START_US + n * (1_000_000 // TPS), *sensors]


def _selected(count: int) -> Columns:
    columns = values(count)
    return [*columns[:-1], columns[-1] * 2]


def _summed(count: int) -> Columns:
    ends = np.arange(WIDTH, count + 1, SLIDE)
    prefixes = [np.concatenate(([0], np.cumsum(column))) for column in values(count)]
    return [prefix[ends] - prefix[ends - WIDTH] for prefix in prefixes]


SELECTION = Operator(
    "selection",
    # All pass. A condition would move to the source's site; what is computed of them does not.
    """
CREATE QUERY q AS SELECT id, timestamp, temperature, illuminance, x, y, z * 2 AS z FROM r
  AT centre {standby} INTO jsonl(path = 'out.jsonl') ON desk;
""",
    _selected,
    lambda outputs: outputs,
)
AGGREGATION = Operator(
    "aggregation",
    f"""
CREATE QUERY q AS SELECT {", ".join(f"SUM({name}) AS {name}" for name in NAMES)}
  FROM r[{WIDTH} ROWS SLIDE {SLIDE} ROWS] AT centre {{standby}}
  INTO jsonl(path = 'out.jsonl') ON desk;
""",
    _summed,
    lambda outputs: WIDTH + SLIDE * (outputs - 1) if outputs else 0,
)


def check(lines: Iterable[str], operator: Operator, at_least: int = 1) -> int:
    """How many outputs there are. Raises TaskError unless they are exactly the operator's first,
    in order, each once, and those of `at_least` tuples."""
    rows = [json.loads(line) for line in lines]
    positions = np.array([row["_pos"] for row in rows], dtype=np.int64)
    if not np.array_equal(positions, np.arange(1, len(rows) + 1)):
        raise TaskError(f"{operator.name}: its output has gaps, repetitions or is out of order")
    if operator.inputs(len(rows)) < at_least - SLIDE:
        raise TaskError(f"{operator.name}: of {at_least:,} tuples, the last have no output")
    expected = operator.expected(operator.inputs(len(rows)))
    for name, column in zip(NAMES, expected, strict=True):
        wrong = sum(row[name] != value for row, value in zip(rows, column.tolist(), strict=True))
        if wrong:
            raise TaskError(f"{operator.name}: {wrong:,} values of {name} are wrong")
    return len(rows)
