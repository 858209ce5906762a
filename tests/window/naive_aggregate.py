"""Window aggregates the slow way, from their definition, to compare with; and drivers for both."""

from __future__ import annotations

import math
import re
import statistics
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from anabranch.plan.expressions import Expr, quoted
from anabranch.plan.operators import AggregateCall, Item
from anabranch.plan.windows import RowPanes, TimePanes
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.aggregate.aggregate import Emitted, WindowAggregate
from anabranch.window.aggregate.calls import CallPlan
from anabranch.window.aggregate.cells import Argument
from anabranch.window.aggregate.lift import Evaluate, Lift, arguments
from anabranch.window.panes import Grid

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("j", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("_ts", pa.int64()),
        ("_born", pa.int64()),
    ]
)
TYPES = {
    "k": "string",
    "j": "bigint",
    "n": "bigint",
    "x": "double",
    "s": "string",
    "d": "decimal(10,2)",
    "_ts": "bigint",
}
Row = dict[str, Any]
Panes = TimePanes | RowPanes


def item(column: str) -> Item:
    return Item(expr=Expr.of("S", column), name=column, type=TYPES[column])


def call(function: str, *columns: str, distinct: bool = False) -> AggregateCall:
    own = TYPES[columns[0]] if columns else ""
    type = {"COUNT": "bigint", "MIN": own, "MAX": own}.get(function, "double")
    if function == "SUM":
        type = {"d": "decimal(20,2)", "n": "bigint"}.get(columns[0], "double")
    if function == "AVG" and columns[0] == "d":
        type = "decimal(14,6)"
    arguments = tuple(Expr.of("S", column) for column in columns)
    name = "_".join([function, *columns, *(["distinct"] if distinct else [])])
    return AggregateCall(
        function=function, arguments=arguments, distinct=distinct, name=name, type=type
    )


def arrow_type(type: str) -> pa.DataType:
    if type.startswith("decimal"):
        return pa.decimal128(*map(int, re.findall(r"\d+", type)))
    return {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}[type]


def value(one: AggregateCall, rows: Sequence[Row]) -> Any:
    """The call over `rows` by the book."""
    columns = [argument.column.column for argument in one.arguments if argument.column]
    given = [tuple(row[column] for column in columns) for row in rows]
    given = [values for values in given if None not in values]
    if one.function == "COUNT":
        return len({bits(values) for values in given}) if one.distinct else len(given)
    xs = [values[0] for values in given]
    if not xs or (one.function.endswith("SAMP") and len(xs) == 1):
        return None
    if one.function in ("MIN", "MAX"):
        pick = min if one.function == "MIN" else max
        return pick(xs, key=lambda v: (v != v, v) if isinstance(v, float) else v)
    if one.function == "SUM":
        return sum(xs[1:], xs[0])
    if isinstance(xs[0], Decimal):
        return (sum(xs) / len(xs)).quantize(Decimal("0.000001"), "ROUND_HALF_UP")
    xs = [float(v) for v in xs]
    if one.function == "AVG":
        return sum(xs) / len(xs)
    if not all(map(math.isfinite, xs)):
        return math.nan
    spread = statistics.variance(xs) if one.function.endswith("SAMP") else statistics.pvariance(xs)
    return math.sqrt(spread) if one.function.startswith("STDDEV") else spread


def naive(
    panes: Panes, keys: Sequence[str], calls: Sequence[AggregateCall], rows: Sequence[Row]
) -> list[tuple[Any, ...]]:
    """Every window over every tuple. Rows of (ts, born, start, end, keys…, calls…)."""
    if isinstance(panes, TimePanes):
        width, slide = panes.width_us, panes.slide_us
        at = [row["_ts"] for row in rows]
    else:
        width, slide, at = panes.width, panes.slide, list(range(len(rows)))
    found = []
    low = min(at, default=0) // slide - width // slide - 1
    for k in range(low, max(at, default=-1) // slide + 1):
        start, end = k * slide, k * slide + width
        if isinstance(panes, RowPanes) and (k < 0 or end > len(rows)):
            continue
        inside = [row for row, place in zip(rows, at, strict=True) if start <= place < end]
        groups: dict[Any, list[Row]] = {}
        for row in inside:
            groups.setdefault(tuple(bits(row[key]) for key in keys), []).append(row)
        for group in groups.values():
            ts = end if isinstance(panes, TimePanes) else max(row["_ts"] for row in inside)
            born = max(row["_born"] for row in group)
            own = [group[0][key] for key in keys]
            results = [value(one, group) for one in calls]
            found.append((ts, born, start, end, *own, *results))
    return found


def bits(thing: Any) -> Any:
    """Equal only for what is equal to the last bit; NaN equals itself."""
    if isinstance(thing, tuple | list):
        return tuple(map(bits, thing))
    return struct.pack("d", thing) if isinstance(thing, float) else thing


def engine(
    panes: Panes, keys: Sequence[str], calls: Sequence[AggregateCall], block: int
) -> WindowAggregate:
    by_position = isinstance(panes, RowPanes)
    plan = CallPlan(calls, [arrow_type(c.type) for c in calls], {}, latest=by_position)
    grid = (
        Grid(panes.width, panes.slide)
        if isinstance(panes, RowPanes)
        else Grid(panes.width_us, panes.slide_us)
    )
    schema = pa.schema([SCHEMA.field(key) for key in keys])
    lift = Lift([Argument(quoted(key)) for key in keys], plan, _columns(keys, plan))
    return WindowAggregate(grid, by_position, plan, schema, lift, block)


def _columns(keys: Sequence[str], plan: CallPlan) -> Evaluate:
    """Keys and arguments are columns here."""
    wanted = arguments([Argument(quoted(key)) for key in keys], plan)

    def evaluate(table: pa.Table) -> dict[Argument, pa.ChunkedArray]:
        found = {one: table.column(one.sql.strip("`")) for one in wanted}
        return {one: c.cast(pa.float64()) if one.double else c for one, c in found.items()}

    return evaluate


@dataclass(frozen=True)
class Cut:
    """A step takes the tuples up to `last`, and then `watermark` holds."""

    last: int
    watermark: int


def cuts(
    rows: Sequence[Row], at: Iterable[int], slack: Callable[[], int], first: int = 1
) -> list[Cut]:
    """Steps that end at the positions `at`, with watermarks that hold, and the stream's end."""
    found: list[Cut] = []
    newest = START_WATERMARK
    for last in sorted({p for p in at if first - 1 <= p <= len(rows)} | {len(rows)}):
        coming = min((row["_ts"] for row in rows[last:]), default=None)
        if coming is not None:
            newest = max(newest, coming - slack())
        found.append(Cut(last, newest))
    return [*found, Cut(len(rows), END_WATERMARK)]


@dataclass(frozen=True)
class Point:
    """Where a run stood after a step."""

    outputs: int
    watermark: int
    needless: int
    instant: int


Step = Callable[[Sequence[Row], int, Cut], tuple[list[tuple[Any, ...]], Point]]


def run(
    step: Step, rows: Sequence[Row], steps: Sequence[Cut], after: int = 0
) -> tuple[list[Any], list[Point]]:
    """All outputs, and a point per step; `outputs` of a point counts all up to there."""
    outputs: list[Any] = []
    points: list[Point] = []
    for cut in steps:
        rows_out, point = step(rows[after : cut.last], after + 1, cut)
        if points:
            assert all(row[0] >= points[-1].watermark for row in rows_out)
            assert point.watermark >= points[-1].watermark
            assert point.needless >= points[-1].needless
            assert point.instant >= points[-1].instant
        outputs += rows_out
        points.append(Point(len(outputs), point.watermark, point.needless, point.instant))
        after = cut.last
    return outputs, points


def stepper(windows: WindowAggregate) -> Step:
    def step(rows: Sequence[Row], first: int, cut: Cut) -> tuple[list[tuple[Any, ...]], Point]:
        table = pa.Table.from_pylist(list(rows), SCHEMA)
        ts = table.column("_ts").to_numpy()
        out = windows.step(table, first, ts, cut.last, cut.watermark)
        return _rows(out), Point(0, out.watermark, out.needless, out.instant)

    return step


def _rows(out: Emitted) -> list[tuple[Any, ...]]:
    fixed = [column.tolist() for column in (out.ts, out.born, out.starts, out.ends)]
    return list(zip(*fixed, *(column.to_pylist() for column in out.columns), strict=True))
