"""The join against the naive evaluator, whole, cut in any way, and restarted at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.plan.expressions import Use
from anabranch.plan.operators import Condition
from anabranch.plan.windows import GONE, UNTIL, Range, Rows, TableWindow, Until, Window
from anabranch.snapshot.state import KeptPieces
from anabranch.snapshot.store import SnapshotStore
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.stream.restart import RestartLog, RestartPoint, SnapshotName
from anabranch.window.arrays import U64, hashed
from anabranch.window.join import members as members_module
from anabranch.window.join.combine import WorkLimits
from anabranch.window.join.join import JoinState
from simulation.disk import Disk, SimFolder
from tests.window.join_cases import (
    RANGES,
    SEEDS,
    SMALL,
    Asked,
    Case,
    PythonEvaluator,
    Step,
    above,
    cases,
    conditions,
    dense_cases,
    equality,
    less,
    run,
    schedule,
    state,
    steady,
    streams,
    use,
    whole,
)
from tests.window.naive import Result, Tuple

CUT = settings(
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
RANDOMS = st.randoms(use_true_random=False)
CUT_SHORT = replace(SMALL, block=3, turn=5)
LIMITS = st.sampled_from(
    [SMALL, replace(SMALL, block=1), replace(SMALL, block=3), CUT_SHORT, WorkLimits()]
)


@CUT
@given(cases(), LIMITS)
def test_whole_streams_give_what_the_text_says(case: Case, limits: WorkLimits) -> None:
    found = [r for part, _ in run(case, state(case, limits), whole(case)) for r in part]
    assert found == case.expected()


@CUT
@given(cases(), RANDOMS, st.integers(1, 9), LIMITS)
def test_cuts_and_interleavings_change_nothing(
    case: Case, random: Random, most: int, limits: WorkLimits
) -> None:
    found = _run_and_check_restart_points(case, random, most, limits)
    assert found == case.expected()


@CUT
@given(cases(), RANDOMS, st.integers(1, 6), st.integers(1, 6), LIMITS, st.data())
def test_restart_at_any_step_gives_exactly_what_is_missing(
    case: Case, random: Random, most: int, most_again: int, limits: WorkLimits, data: st.DataObject
) -> None:
    nothing = [0] * len(case.streams)
    steps = list(run(case, state(case, limits), schedule(case, random, nothing, most)))
    at = data.draw(st.integers(0, len(steps) - 1))
    before = [r for part, _ in steps[: at + 1] for r in part]
    _, point = steps[at]
    again = _run_and_check_restart_points(
        case, random, most_again, SMALL, point.needless, point.instant
    )
    assert before + again == case.expected()


@settings(CUT, max_examples=60)
@given(dense_cases(), SEEDS, LIMITS)
def test_dense_streams_whole_cut_and_restarted(case: Case, seed: int, limits: WorkLimits) -> None:
    random = Random(seed)
    expected = case.expected()
    found = [r for part, _ in run(case, state(case, limits), whole(case)) for r in part]
    assert found == expected
    nothing = [0] * len(case.streams)
    steps = list(run(case, state(case, limits), steady(case, random, nothing)))
    assert [r for part, _ in steps for r in part] == expected
    for at in random.sample(range(len(steps)), min(4, len(steps))):
        before = [r for part, _ in steps[: at + 1] for r in part]
        _, point = steps[at]
        again = steady(case, random, point.needless)
        assert before + _checked(case, limits, again, point.needless, point.instant) == expected


@CUT
@given(cases(), SEEDS, LIMITS, st.data())
def test_a_restored_state_gives_exactly_what_is_missing(
    case: Case, seed: int, limits: WorkLimits, data: st.DataObject
) -> None:
    random = Random(seed)
    _check_states(case, limits, random, lambda after: schedule(case, random, after, 4), data)


@settings(CUT, max_examples=60)
@given(dense_cases(), SEEDS, LIMITS, st.data())
def test_a_restored_state_of_dense_streams(
    case: Case, seed: int, limits: WorkLimits, data: st.DataObject
) -> None:
    random = Random(seed)
    _check_states(case, limits, random, lambda after: steady(case, random, after), data)


def _check_states(
    case: Case,
    limits: WorkLimits,
    random: Random,
    steps: Callable[[Sequence[int]], Iterator[Step]],
    data: st.DataObject,
) -> None:
    """The state is kept after every whole step. One of them is restored, perhaps after more was
    acknowledged, and again on the way; what it then says of a restart without it holds, too."""
    join = state(case, limits)
    found, kept = _keep_states(case, join, steps([0] * len(case.streams)))
    outputs = [result for part in found for result in part]
    assert outputs == case.expected()
    at = data.draw(st.integers(0, len(kept) - 1))
    acknowledged = data.draw(st.integers(at, len(kept) - 1))
    last, states, _, _ = kept[at]
    _, _, given, instant = kept[acknowledged]
    again = state(case, limits)
    again.open(instant)
    again.restore(states)
    parts, later = _keep_states(case, again, steps(last))
    assert outputs[:given] + [result for part in parts for result in part] == outputs
    last, states, more, instant = random.choice(later)
    third = state(case, limits)
    third.open(instant)
    third.restore(states)
    rest = [result for part, _ in run(case, third, steps(last)) for result in part]
    assert outputs[given + more :] == rest


def _keep_states(
    case: Case, join: JoinState, steps: Iterator[Step]
) -> tuple[list[list[Result]], list[tuple[list[int], KeptPieces, int, int]]]:
    """The results; and after each whole step the positions taken, the state, the number of
    results so far, and the instant."""
    found: list[list[Result]] = []
    kept: list[tuple[list[int], KeptPieces, int, int]] = []
    process: Any = SimpleNamespace(name="here", fails_now=bool)
    store, random = SnapshotStore(SimFolder(Disk(Random(1)), process), "q"), Random(1)
    for step in steps:
        for part, outcome in run(case, join, iter([step])):
            found.append(part)
            if not outcome.more:
                name = SnapshotName(0, len(kept) + 1, "a")
                store.keep(name, join.snapshot())
                held = store.load(name)
                assert held
                kept.append((step[1], held, sum(map(len, found)), outcome.instant))
                if random.random() < 0.5:  # what is written is named again, or copied
                    store.keep_only({name})
    return found, kept


def _run_and_check_restart_points(
    case: Case,
    random: Random,
    most: int,
    limits: WorkLimits,
    after: tuple[int, ...] | None = None,
    instant: int = START_WATERMARK,
) -> list[Result]:
    after = after or (0,) * len(case.streams)
    return _checked(case, limits, schedule(case, random, after, most), after, instant)


def _checked(
    case: Case, limits: WorkLimits, steps: Iterator[Step], after: tuple[int, ...], instant: int
) -> list[Result]:
    join = state(case, limits)
    join.open(instant)
    log = RestartLog(RestartPoint(after, 0, instant))
    found: list[Result] = []
    for part, outcome in run(case, join, steps):
        found += part
        log.add(RestartPoint(outcome.needless, len(found), outcome.instant))  # never goes back
    return found


@settings(CUT, max_examples=60)
@given(cases())
def test_equal_hashes_of_different_keys_do_no_harm(case: Case) -> None:
    def colliding(column: pa.Array) -> U64:
        return hashed(column) % np.uint64(2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members_module, "hashed", colliding)
        found = [r for part, _ in run(case, state(case), whole(case)) for r in part]
    assert found == case.expected()


NUMBERS = {"k": "k1", "v": "v1", "_ts": "t1"}
"""Columns of the second input under which a partial join carries them."""


def carried(asked: Asked) -> Asked:
    """A condition on three inputs as one on what the first two gave, and the third."""

    def change(old: Use) -> Use:
        if old.input == "i2":
            return use("i1", old.column)
        if old.input == "i1":
            return use("i0", NUMBERS[old.column])
        return use("i0", "t0" if old.column == "_ts" else old.column)

    condition = asked.condition
    equal = condition.equal and (change(condition.equal[0]), change(condition.equal[1]))
    expr = condition.expr.renamed(change)
    return Asked(Condition(expr=expr, equal=equal, safe=condition.safe), asked.holds)


@st.composite
def joins_of_three(draw: st.DrawFn) -> Case:
    tuples = [draw(streams(8)) for _ in range(draw(st.integers(3, 4)))]
    numbers = st.integers(0, len(tuples) - 1)
    return Case(
        tuples,
        [draw(RANGES) for _ in range(3)],
        draw(st.lists(numbers, min_size=1, max_size=3, unique=True)),
        draw(conditions(["i0", "i1", "i2"], keys="k")),
    )


@settings(CUT, max_examples=100)
@given(joins_of_three(), RANDOMS, st.integers(1, 9))
def test_a_partial_join_beforehand_changes_nothing(case: Case, random: Random, most: int) -> None:
    """Every master is one of both joins; one that is not in FROM there only triggers."""
    others = [n for n in case.masters if n > 1]
    early = [one for one in case.asked if one.condition.expr.inputs <= {"i0", "i1"}]
    partial = Case(
        [case.streams[n] for n in (0, 1, *others)],
        case.windows[:2],
        [n if n < 2 else 2 + others.index(n) for n in case.masters],
        early,
        partial=True,
    )
    first = list(_partial_results(partial, random, most))
    rest = [n for n in case.masters if n != 2]
    last = Case(
        [first, *(case.streams[n] for n in (2, *rest))],
        [Until(), case.windows[2]],
        [1 if n == 2 else 2 + rest.index(n) for n in case.masters],
        [carried(one) for one in case.asked if one not in early],
        order=(use("i0", "_order.0"), use("i0", "_order.1"), use("i1", "_pos")),
        added=("_order.0", "_order.1", "t0", *NUMBERS.values()),
    )
    found = _run_and_check_restart_points(last, random, most, SMALL)
    pairs = {x.pos: (x.values["_order.0"], x.values["_order.1"]) for x in first}
    expected = [(r.ts, *r.positions) for r in case.expected()]
    assert [(r.ts, *pairs[r.positions[0]], r.positions[1]) for r in found] == expected


def _partial_results(case: Case, random: Random, most: int) -> Iterator[Tuple]:
    position, known = 0, START_WATERMARK
    steps = schedule(case, random, [0] * len(case.streams), most)
    for _, outcome in run(case, state(case), steps):
        for row in outcome.table.to_pylist() if outcome.table is not None else []:
            assert row["_ts"] >= known
            a, b = (case.streams[n][row[f"_order.{n}"] - 1] for n in (0, 1))
            second = {name: {**b.values, "_ts": b.ts}[old] for old, name in NUMBERS.items()}
            own = {name: row[name] for name in (UNTIL, "_order.0", "_order.1")}
            position += 1
            yield Tuple(
                position, row["_ts"], {**a.values, "t0": a.ts, **second, **own}, row["_born"]
            )
        known = outcome.watermark


VALUE = {"k": 1, "f": 0.5, "s": "x", "v": 3}
STEP, STEPS = 50, 60


def _table_of_one_row(count: int) -> list[Tuple]:
    """Each version replaces its row."""
    tuples = [Tuple(1, 0, {**VALUE, GONE: None})]
    for ts in range(1, count // 2):
        tuples.append(Tuple(2 * ts, ts, {**VALUE, GONE: max(1, 2 * ts - 1)}))
        tuples.append(Tuple(2 * ts + 1, ts, {**VALUE, GONE: None}))
    return tuples


@pytest.mark.parametrize(
    "window", [Range(width_us=40), Rows(count=30), TableWindow(), Until()], ids=str
)
@pytest.mark.parametrize("idle", [False, True])
def test_what_has_ended_is_let_go(window: Window, idle: bool) -> None:
    """Also if nothing but watermarks come any more, except from `S[n ROWS]` and a table."""
    if isinstance(window, TableWindow):
        stream = _table_of_one_row(STEP * STEPS)
    else:
        stream = [
            Tuple(n, n + (7 * n) % 5, {**VALUE, UNTIL: n + 30} if window.kind == "until" else VALUE)
            for n in range(1, STEP * STEPS + 1)
        ]
    case = Case([stream, stream], [window, Range(width_us=5)], [1], [_equal_k()])
    join = state(case, WorkLimits(), Nothing(case.asked))
    for n in range(STEPS):
        taken = stream[n * STEP : (n + 1) * STEP]
        (_, outcome), *_ = run(case, join, iter([_step(taken)]))
        assert all(taken[-1].pos - p <= STEP + 100 for p in outcome.needless)
        assert all(rows <= 2 * (STEP + 50) for rows in join.held)
    if idle:
        end = stream[-1].ts + 1000
        (_, outcome), *_ = run(case, join, iter([_step([], stream[-1].pos, end)]))
        kept = {"rows": 30, "relation": 1}.get(window.kind, 0)
        assert stream[-1].pos - outcome.needless[0] <= kept + 5
        assert outcome.needless[1] == stream[-1].pos
        assert join.held[1] == 0


def _equal_k() -> Asked:
    return equality(use("i0", "k"), use("i1", "k"))


def _step(taken: list[Tuple], last: int = 0, watermark: int = 0) -> Step:
    if taken:
        last, watermark = taken[-1].pos, taken[-1].ts - 4
    return [taken, taken], [last, last], [watermark, watermark]


class Nothing(PythonEvaluator):
    """Keeps nothing, fast."""

    def results(self, candidates: pa.Table) -> pa.Table:
        self.sizes.append(len(candidates))
        return candidates.slice(0, 0)


@pytest.mark.parametrize("asked", [[], [_equal_k()]], ids=["product", "one key"])
def test_much_at_once_is_compared_only_where_windows_meet(asked: list[Asked]) -> None:
    stream = [Tuple(n, n, VALUE) for n in range(1, 20_001)]
    case = Case([stream, stream], [Range(width_us=10), Range(width_us=10)], [0], asked)
    evaluator = Nothing(case.asked)
    list(run(case, state(case, WorkLimits(block=50_000), evaluator), whole(case)))
    assert sum(evaluator.sizes) == 20_000 * 19 - 90
    assert max(evaluator.sizes) <= 50_000


def test_conditions_on_one_input_keep_a_product_small() -> None:
    """Three sensors, of which few are hot."""
    stream = [Tuple(n, n, {**VALUE, "v": 60 if n % 40 == 0 else 20}) for n in range(1, 401)]
    asked = [above(use(f"i{n}", "v"), 50) for n in range(3)]
    case = Case([stream] * 3, [Range(width_us=100)] * 3, [0, 1, 2], asked)
    evaluator = PythonEvaluator(case.asked)
    (found, _), *_ = run(case, state(case, WorkLimits(), evaluator), whole(case))
    assert len(found) > 100
    assert sum(evaluator.sizes) == 3 * 400 + len(found)


@pytest.mark.parametrize("safe", [True, False])
def test_conditions_on_two_inputs_are_asked_before_a_third_only_if_they_cannot_fail(
    safe: bool,
) -> None:
    stream = [Tuple(n, n, {**VALUE, "v": n}) for n in range(1, 31)]
    asked = [less(use("i0", "v"), use("i1", "v"), safe), less(use("i0", "v"), use("i2", "v"), safe)]
    case = Case([stream] * 3, [Range(width_us=4)] * 3, [0], asked)
    evaluator = PythonEvaluator(case.asked)  # which refuses to be asked others early
    (found, _), *_ = run(case, state(case, WorkLimits(asking=20), evaluator), whole(case))
    assert found == case.expected()
    assert (len(evaluator.sizes) > 1) == safe


def test_a_tuple_behind_the_watermark_is_refused() -> None:
    case = Case([[Tuple(1, 5, VALUE)]], [Range(width_us=3)], [0])
    join = state(case)
    list(run(case, join, iter([([[]], [0], [9])])))
    with pytest.raises(ValueError, match="event time 5 behind its watermark 9"):
        list(run(case, join, iter([([case.streams[0]], [1], [9])])))


def test_times_at_the_limits() -> None:
    """Ends do not overflow."""
    late = END_WATERMARK - 2
    stream = [Tuple(1, -(2**62), VALUE), Tuple(2, late, VALUE)]
    case = Case([stream], [Range(width_us=2**62)], [0])
    (found, _), *_ = run(case, state(case), whole(case))
    assert [r.ts for r in found] == [-(2**62), late]


def _crossed(rows: int) -> Case:
    """A product without results: every tuple meets every one of the other stream."""
    tuples = [
        [Tuple(n, n, {"k": 1, "f": 0.0, "s": "a", "v": v}, 0) for n in range(1, rows + 1)]
        for v in (5, 1)
    ]
    asked = [less(use("i0", "v"), use("i1", "v"))]
    return Case(tuples, [Range(width_us=1000), Range(width_us=1000)], [0, 1], asked)


def test_a_step_looks_at_so_many_combinations_and_no_more() -> None:
    limits = WorkLimits(block=100, asking=50_000, fresh=1000, turn=1000)
    evaluator = PythonEvaluator((case := _crossed(200)).asked)
    sizes, steps = [], 0
    for found, outcome in run(case, state(case, limits, evaluator), whole(case)):
        assert found == []
        sizes.append(sum(evaluator.sizes))
        evaluator.sizes.clear()
        steps += 1
        assert outcome.more or outcome.watermark == END_WATERMARK
    assert sum(sizes) == 200 * 200
    assert max(sizes) <= 1000 + 2 * 100
    assert steps >= 35


def test_an_instant_that_takes_several_turns() -> None:
    """Its results come together, in the order of positions, and nothing is let go of before."""
    count = 40
    rows = {"k": 1, "f": 0.0, "s": "a", "v": 1}
    tuples = [[Tuple(n, 1, rows, 0) for n in range(1, count + 1)] for _ in range(2)]
    case = Case(tuples, [Range(width_us=10), Range(width_us=10)], [0])
    limits = WorkLimits(block=10, asking=50_000, fresh=1000, turn=100)
    steps = list(run(case, state(case, limits), whole(case)))
    assert [r for part, _ in steps for r in part] == case.expected()
    assert len(steps) > 10
    for part, outcome in steps[:-1]:
        assert (part, outcome.needless, outcome.watermark) == ([], (0, 0), START_WATERMARK)


def test_whoever_stops_a_step_is_asked_after_every_block() -> None:
    class Stop(Exception):
        pass

    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise Stop

    case = _crossed(200)
    evaluator = PythonEvaluator(case.asked)
    join = JoinState(
        case.join, case.inputs, [], evaluator, WorkLimits(block=100, fresh=1000, turn=10**9), check
    )
    with pytest.raises(Stop):
        list(run(case, join, whole(case)))
    assert sum(evaluator.sizes) <= 400


@settings(CUT, max_examples=100)
@given(cases(), RANDOMS, LIMITS, st.data())
def test_doing_without_an_index_from_any_step_on_changes_nothing(
    case: Case, random: Random, limits: WorkLimits, data: st.DataObject
) -> None:
    keys = [use for c in case.join.conditions for use in c.equal or ()]
    computed = data.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    evaluator = PythonEvaluator(case.asked)
    uses = [use(alias, name) for alias in case.held for name in ("_pos", "v", "s")]
    join = JoinState(case.join, case.inputs, uses, evaluator, limits, computed=computed)
    found: list[Result] = []
    give_up = data.draw(st.integers(0, 5))
    steps = schedule(case, random, [0] * len(case.streams), 5)
    for number, step in enumerate(steps):
        if number == give_up:
            join.try_all()
        found += [r for part, _ in run(case, join, iter([step])) for r in part]
    assert found == case.expected()
