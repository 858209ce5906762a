"""What a plan means: every stream from whole inputs at once, by the definitions alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulation.operators import MODULUS, CountRows, CountTime, Join, Kind, Select, Until
from simulation.plan import Plan
from simulation.rows import Row

Stream = list[Row]


def reference(plan: Plan) -> dict[str, Stream]:
    """Every stream's tuples in order of position."""
    known: dict[str, Stream] = {source.name: list(source.rows) for source in plan.sources}
    for task in plan.tasks:
        known[task.name] = meaning(task.kind, [known[name] for name in task.inputs])
    return known


def meaning(kind: Kind, inputs: Sequence[Stream], after: int = 0) -> Stream:
    """Of inputs that begin where a query does: the first of them behind position `after`."""
    match kind:
        case Select():
            return [row for row in inputs[0] if row[1] % kind.drop]
        case Until():
            return [row for row in inputs[0] if row[0] < kind.end]
        case CountTime():
            return _count_time(kind, inputs[0])
        case CountRows():
            return _count_rows(kind, inputs[0], after)
        case Join():
            return _join(kind, inputs[0], inputs[1])


def _count_time(kind: CountTime, rows: Stream) -> Stream:
    if not rows:
        return []
    times = [ts for ts, _ in rows]
    found = []
    start = (min(times) - kind.width) // kind.slide * kind.slide
    for begin in range(start, max(times) + 1, kind.slide):
        inside = [value for ts, value in rows if begin <= ts < begin + kind.width]
        if inside:
            found.append((begin + kind.width, (17 * len(inside) + sum(inside)) % MODULUS))
    return found


def _count_rows(kind: CountRows, rows: Stream, after: int) -> Stream:
    found = []
    for begin in range(-after % kind.slide, len(rows) - kind.width + 1, kind.slide):
        window = rows[begin : begin + kind.width]
        total = sum(value for _, value in window)
        found.append((window[-1][0], ((after + begin + 1) * 13 + total) % MODULUS))
    return found


def _join(kind: Join, left: Stream, right: Stream) -> Stream:
    """At each instant, the combinations that are new in the result."""
    instants = sorted({ts for ts, _ in left} | {ts for ts, _ in right})
    found: Stream = []
    before: set[tuple[int, int]] = set()
    for t in instants:
        near = [(i, x) for i, (a, x) in enumerate(left) if t - kind.widths[0] < a <= t]
        far = [(j, y) for j, (b, y) in enumerate(right) if t - kind.widths[1] < b <= t]
        now = {(i, j) for i, x in near for j, y in far if (x + y) % kind.drop}
        for i, j in sorted(now - before):
            found.append((t, (left[i][1] * 31 + right[j][1]) % MODULUS))
        before = now
    return found


def first_difference(got: Mapping[int, Row], wanted: Stream) -> str:
    """Empty if position → tuple is just the wanted sequence."""
    for position, row in enumerate(wanted, 1):
        if got.get(position) != row:
            return f"position {position}: wanted {row}, got {got.get(position)}"
    more = sorted(position for position in got if not 1 <= position <= len(wanted))
    return f"position {more[0]}: wanted nothing, got {got[more[0]]}" if more else ""
