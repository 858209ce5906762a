"""Random joins over random streams, and ways to run them: whole, in pieces, from the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.plan.expressions import Expr, Use, flat_name
from anabranch.plan.operators import Condition, Join
from anabranch.plan.windows import GONE, UNTIL, Range, Rows, TableWindow, Until, Window
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.join.combine import WorkLimits
from anabranch.window.join.join import Arrival, JoinState, Outcome
from anabranch.window.join.results import INDEX
from tests.window.naive import Result, Tuple, Values, evaluate

COLUMNS = pa.schema([("k", pa.int32()), ("f", pa.float64()), ("s", pa.string()), ("v", pa.int64())])
NAN = float("nan")


def use(alias: str, column: str) -> Use:
    return Use(input=alias, column=column)


def equal(a: Any, b: Any) -> bool:
    """As Spark's `=`."""
    if a is None or b is None:
        return False
    return bool(a == b) or (a != a and b != b)


@dataclass(frozen=True)
class Asked:
    """A condition, and what it says in Python about the values of its uses."""

    condition: Condition
    holds: Callable[..., bool]

    def of(self, row: Callable[[Use], Any]) -> bool:
        values = [row(u) for u in self.condition.expr.uses]
        return None not in values and self.holds(*values)


def equality(a: Use, b: Use) -> Asked:
    expr = Expr(pieces=("", " = ", ""), uses=(a, b))
    return Asked(Condition(expr=expr, equal=(a, b), safe=True), equal)


def less(a: Use, b: Use, safe: bool = True) -> Asked:
    return Asked(
        Condition(expr=Expr(pieces=("", " < ", ""), uses=(a, b)), safe=safe), lambda x, y: x < y
    )


def above(a: Use, least: int, safe: bool = True) -> Asked:
    expr = Expr(pieces=("", f" >= {least}"), uses=(a,))
    return Asked(Condition(expr=expr, safe=safe), lambda x: x >= least)


def sum_above(a: Use, b: Use, c: Use) -> Asked:
    expr = Expr(pieces=("", " + ", " >= ", ""), uses=(a, b, c))
    return Asked(Condition(expr=expr, safe=True), lambda x, y, z: x + y >= z)


Step = tuple[list[list[Tuple]], list[int], list[int]]
"""Per input: tuples, the last position taken, the watermark."""


@dataclass(frozen=True)
class Case:
    streams: list[list[Tuple]]
    windows: list[Window]
    masters: list[int]
    asked: list[Asked] = field(default_factory=list)
    order: tuple[Use, ...] = ()
    partial: bool = False
    added: tuple[str, ...] = ()
    """Columns of whole numbers that the first input has besides."""

    @property
    def aliases(self) -> list[str]:
        return [f"i{n}" for n in range(len(self.streams))]

    @property
    def held(self) -> list[str]:
        return self.aliases[: len(self.windows)]

    @property
    def join(self) -> Join:
        return Join(
            windows=tuple(self.windows),
            masters=tuple(self.masters),
            conditions=tuple(one.condition for one in self.asked),
            order=self.order or tuple(use(alias, "_pos") for alias in self.held),
            partial=self.partial,
        )

    def schema(self, number: int) -> pa.Schema:
        window = self.windows[number] if number < len(self.windows) else None
        own = {"relation": [GONE], "until": [UNTIL]}.get(window.kind, []) if window else []
        own += self.added if number == 0 else ()
        return pa.schema([*COLUMNS, *(pa.field(name, pa.int64()) for name in own)])

    @property
    def inputs(self) -> list[tuple[str, pa.Schema]]:
        return [(alias, self.schema(n)) for n, alias in enumerate(self.aliases)]

    def predicate(self, values: Sequence[Values]) -> bool:
        by_alias = dict(zip(self.held, values, strict=True))
        return all(one.of(lambda u: by_alias[u.input][u.column]) for one in self.asked)

    def expected(self) -> list[Result]:
        return evaluate(self.streams, self.windows, self.masters, self.predicate)


class PythonEvaluator:
    """Asks conditions row by row, and gives all candidates' columns as they are."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._asked = {one.condition: one for one in asked}
        self.sizes: list[int] = []

    def keep(self, candidates: pa.Table, conditions: Sequence[Condition]) -> np.ndarray:
        assert conditions
        assert all(condition.safe for condition in conditions)  # others only in the end
        return self._keep(candidates, conditions)

    def results(self, candidates: pa.Table) -> pa.Table:
        return candidates.take(pa.array(self._keep(candidates, list(self._asked))))

    def _keep(self, candidates: pa.Table, conditions: Sequence[Condition]) -> np.ndarray:
        self.sizes.append(len(candidates))
        rows = candidates.to_pylist()
        asked = [self._asked[condition] for condition in conditions]
        fulfil = [
            row[INDEX]
            for row in rows
            if all(one.of(lambda u, row=row: row[flat_name(u)]) for one in asked)
        ]
        return np.array(fulfil[::-1], np.int64)  # backwards: nobody may rely on the order


SMALL = WorkLimits(block=200_000, asking=20, fresh=3)
"""So that small cases go all ways."""


def state(
    case: Case, limits: WorkLimits = SMALL, evaluator: PythonEvaluator | None = None
) -> JoinState:
    uses = [use(alias, name) for alias in case.held for name in ("_pos", "v", "s")]
    evaluator = evaluator or PythonEvaluator(case.asked)
    return JoinState(case.join, case.inputs, uses, evaluator, limits)


def arrow(tuples: Sequence[Tuple], schema: pa.Schema) -> pa.Table:
    wire = schema.append(pa.field("_ts", pa.int64())).append(pa.field("_born", pa.int64()))
    rows = [{**x.values, "_ts": x.ts, "_born": x.born} for x in tuples]
    return pa.Table.from_pylist(rows, wire)


def schedule(case: Case, random: Random, after: Sequence[int], most: int) -> Iterator[Step]:
    """Random cuts: per step and input, tuples, the last position and a watermark that holds."""
    left = [[x for x in s if x.pos > p] for s, p in zip(case.streams, after, strict=True)]
    last, watermarks = list(after), [START_WATERMARK] * len(left)
    while any(left):
        step: list[list[Tuple]] = []
        for n, tuples in enumerate(left):
            count = random.choice([0, random.randint(0, most)])
            step.append(tuples[:count])
            left[n] = tuples[count:]
            last[n] = step[n][-1].pos if step[n] else last[n]
            possible = min((x.ts for x in left[n]), default=END_WATERMARK)
            if random.random() < 0.7:
                lower = random.randint(0, 3) if possible != END_WATERMARK else 0
                watermarks[n] = max(watermarks[n], possible - lower)
        yield step, list(last), list(watermarks)
    yield [[] for _ in left], list(last), [END_WATERMARK] * len(left)


def whole(case: Case) -> Iterator[Step]:
    last = [len(stream) for stream in case.streams]
    yield case.streams, last, [END_WATERMARK] * len(last)


def run(
    case: Case, join: JoinState, steps: Iterator[Step]
) -> Iterator[tuple[list[Result], Outcome]]:
    """A step that was cut is gone on with before the next one, as a task does."""
    for tuples, last, watermarks in steps:
        outcome = join.step(_arrivals(case, tuples, last, watermarks))
        yield list(results(case, outcome)), outcome
        while outcome.more:
            outcome = join.step(_arrivals(case, [[] for _ in tuples], last, watermarks))
            yield list(results(case, outcome)), outcome


def _arrivals(
    case: Case, tuples: list[list[Tuple]], last: list[int], watermarks: list[int]
) -> list[Arrival]:
    return [
        Arrival(
            arrow(tuples[n], case.schema(n)),
            np.array([x.pos for x in tuples[n]], np.int64),
            last[n],
            watermarks[n],
        )
        for n in range(len(tuples))
    ]


def results(case: Case, outcome: Outcome) -> Iterator[Result]:
    """What came out, having checked that values belong to their positions."""
    by_pos = [{x.pos: x for x in stream} for stream in case.streams]
    for row in outcome.table.to_pylist() if outcome.table is not None else []:
        positions = tuple(row[f"{alias}._pos"] for alias in case.held)
        for n, alias in enumerate(case.held):
            values = by_pos[n][positions[n]].values
            assert (row[f"{alias}.v"], row[f"{alias}.s"]) == (values["v"], values["s"])
        assert row["_ts"] < outcome.watermark
        yield Result(row["_ts"], positions, row["_born"])


# --- Strategies -------------------------------------------------------------------------------

TIMES = st.integers(-3, 24)
VALUES = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, 1, 1, 2, 3]),
        "f": st.sampled_from([None, 0.0, -0.0, NAN, 1.5]),
        "s": st.sampled_from([None, "", "a", "b", "ä", "aa"]),
        "v": st.integers(-3, 6),
    }
)


@st.composite
def streams(draw: st.DrawFn, most: int = 12) -> list[Tuple]:
    rows = draw(st.lists(st.tuples(TIMES, VALUES, st.integers(0, 99)), max_size=most))
    return [Tuple(n, ts, values, born) for n, (ts, values, born) in enumerate(rows, 1)]


@st.composite
def tables(draw: st.DrawFn, most: int = 12) -> list[Tuple]:
    """Versions in order; each removes and adds some rows."""
    times = sorted(draw(st.lists(TIMES, max_size=most)))
    tuples: list[Tuple] = []
    present: list[int] = []
    for n, ts in enumerate(times, 1):
        values = draw(VALUES)
        gone = draw(st.sampled_from([None, *present]))
        if gone is None:
            present.append(n)
        else:
            present.remove(gone)
        tuples.append(Tuple(n, ts, {**values, GONE: gone}, n))
    return tuples


@st.composite
def until_streams(draw: st.DrawFn) -> list[Tuple]:
    return [
        Tuple(x.pos, x.ts, {**x.values, UNTIL: x.ts + draw(st.integers(0, 9))}, x.born)
        for x in draw(streams())
    ]


RANGES = st.builds(Range, width_us=st.integers(1, 12))
ROWS = st.builds(Rows, count=st.integers(1, 5))


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Window, list[Tuple]]:
    kind = draw(st.sampled_from(["range", "range", "rows", "relation", "until"]))
    if kind == "relation":
        return TableWindow(), draw(tables())
    if kind == "until":
        return Until(), draw(until_streams())
    return draw(RANGES if kind == "range" else ROWS), draw(streams())


@st.composite
def conditions(draw: st.DrawFn, held: Sequence[str], keys: str = "kkfs") -> list[Asked]:
    def any_use(column: str) -> st.SearchStrategy[Use]:
        return st.sampled_from(held).map(lambda alias: use(alias, column))

    def pair(column: str) -> list[Use]:
        a, b = draw(st.lists(st.sampled_from(held), min_size=2, max_size=2, unique=True))
        return [use(a, column), use(b, column)]

    kinds = ["above", "times"] + ["equal", "equal", "less", "together"] * (len(held) > 1)
    kinds += ["sum"] * (len(held) > 2)
    found: list[Asked] = []
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3)):
        safe = draw(st.booleans())
        if kind == "equal":
            found.append(equality(*pair(draw(st.sampled_from(keys)))))
        elif kind == "together":
            found.append(equality(*pair("_ts")))
        elif kind == "less":
            found.append(less(*pair("v"), safe=safe))
        elif kind == "above":
            found.append(above(draw(any_use("v")), draw(st.integers(-2, 3)), safe))
        elif kind == "times":
            found.append(above(draw(any_use("_ts")), draw(st.integers(-2, 9)), safe))
        else:
            found.append(sum_above(*(use(alias, "v") for alias in held[:3])))
    return list({one.condition: one for one in found}.values())


@st.composite
def cases(draw: st.DrawFn, most_inputs: int = 3) -> Case:
    count = draw(st.integers(1, most_inputs))
    drawn = [draw(inputs()) for _ in range(count)]
    windows, tuples = [w for w, _ in drawn], [t for _, t in drawn]
    if count > 1 and draw(st.booleans()) and not isinstance(windows[0], TableWindow | Until):
        windows[1], tuples[1] = draw(st.one_of(RANGES, ROWS)), tuples[0]  # joined with itself
    tuples += [draw(streams(8)) for _ in range(draw(st.integers(0, 1)))]
    masters = draw(
        st.lists(st.integers(0, len(tuples) - 1), min_size=1, max_size=len(tuples), unique=True)
    )
    held = [f"i{n}" for n in range(count)]
    return Case(tuples, windows, masters, draw(conditions(held)))


def _dense_case(random: Random) -> Case:
    """Longer streams, nearly in order, that meet often: what random draws rarely give."""
    count = random.choice([1, 2, 2, 2, 3])
    length = 40 if count < 3 else 16

    def value() -> dict[str, Any]:
        key = random.choice([None, 1, 1, 2, 2, 3])
        number = random.choice([None, 0.0, -0.0, NAN])
        return {"k": key, "f": number, "s": random.choice("ab"), "v": random.randint(-3, 6)}

    def stream() -> list[Tuple]:
        times = sorted(random.randint(0, 60) for _ in range(random.randint(length // 2, length)))
        late = [ts + random.choice([0, 0, 0, -4, 3]) for ts in times]
        return [Tuple(n, ts, value(), random.randint(0, 99)) for n, ts in enumerate(late, 1)]

    def held() -> tuple[Window, list[Tuple]]:
        tuples = stream()
        kind = random.choice(["range", "range", "rows", "rows", "relation", "until"])
        if kind == "range":
            return Range(width_us=random.randint(3, 25)), tuples
        if kind == "rows":
            return Rows(count=random.randint(1, 8)), tuples
        if kind == "until":
            ends = [x.ts + random.randint(0, 25) for x in tuples]
            own = [{**x.values, UNTIL: end} for x, end in zip(tuples, ends, strict=True)]
        else:
            tuples.sort(key=lambda x: x.ts)
            present: list[int] = []
            own = []
            for n, x in enumerate(tuples, 1):
                gone = random.choice([None, *present[-4:], *present[:2]])
                present = [*present, n] if gone is None else [p for p in present if p != gone]
                own.append({**x.values, GONE: gone})
        pairs = enumerate(zip(tuples, own, strict=True), 1)
        window = Until() if kind == "until" else TableWindow()
        return window, [Tuple(n, x.ts, values, x.born) for n, (x, values) in pairs]

    drawn = [held() for _ in range(count)]
    aliases = [f"i{n}" for n in range(count)]
    asked = []
    for a, b in pairwise(aliases):
        column = random.choice(["k", "k", "f", "s", ""])
        if column:
            asked.append(equality(use(a, column), use(b, column)))
        else:
            asked.append(less(use(a, "v"), use(b, "v"), safe=random.random() < 0.5))
    if random.random() < 0.7:
        asked.append(above(use(random.choice(aliases), "v"), 2, safe=random.random() < 0.7))
    tuples = [t for _, t in drawn] + [stream() for _ in range(random.choice([0, 0, 1]))]
    masters = random.sample(range(len(tuples)), random.randint(1, len(tuples)))
    return Case(tuples, [w for w, _ in drawn], masters, asked)


SEEDS = st.integers(0, 2**32)


def dense_cases() -> st.SearchStrategy[Case]:
    return SEEDS.map(lambda seed: _dense_case(Random(seed)))


def steady(case: Case, random: Random, after: Sequence[int]) -> Iterator[Step]:
    """All inputs go on in event time together, as in life: so much is done at every step."""
    left = [[x for x in s if x.pos > p] for s, p in zip(case.streams, after, strict=True)]
    last, watermarks, now = list(after), [START_WATERMARK] * len(left), -5
    while any(left):
        now += random.randint(0, 9)
        step = []
        for n, tuples in enumerate(left):
            upto = now + random.randint(-2, 6)
            count = next((i for i, x in enumerate(tuples) if x.ts > upto), len(tuples))
            step.append(tuples[:count])
            left[n] = tuples[count:]
            last[n] = step[n][-1].pos if step[n] else last[n]
            behind = min((x.ts for x in left[n]), default=END_WATERMARK)
            watermarks[n] = max(watermarks[n], min(behind, now))
        yield step, list(last), list(watermarks)
    yield [[] for _ in left], list(last), [END_WATERMARK] * len(left)
