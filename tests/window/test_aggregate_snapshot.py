"""What window aggregates give after their state was kept and restored, against what they give
without: to the bit, wherever the input is cut and the state taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.disk.real import RealFolder
from anabranch.plan.operators import AggregateCall
from anabranch.plan.spec import Call
from anabranch.plan.windows import TimePanes
from anabranch.site.tasks.aggregate import load_custom
from anabranch.snapshot.state import KeptPieces
from anabranch.snapshot.store import SnapshotStore
from anabranch.stream.restart import SnapshotName
from anabranch.window.aggregate.aggregate import WindowAggregate
from tests.window.naive_aggregate import Cut, Panes, Row, bits, call, engine, run, stepper
from tests.window.test_aggregate import (
    any_panes,
    blocks,
    call_lists,
    draw_cuts,
    examples,
    floats,
    key_lists,
    rows,
    tuples,
)


def kept(windows: WindowAggregate) -> KeptPieces:
    """As if it had been on a disk, and written by another thread later."""
    state = windows.snapshot()
    return KeptPieces(state.notes, [piece.to_bytes() for piece in state.pieces])


@examples(150)
@given(any_panes, key_lists, call_lists, rows(floats), blocks, st.data())
def test_a_restored_state_gives_the_same_to_the_bit(
    panes: Panes,
    keys: list[str],
    calls: list[AggregateCall],
    stream: list[Row],
    block: int,
    data: st.DataObject,
) -> None:
    steps = draw_cuts(data, stream)
    windows = engine(panes, keys, calls, block)
    step = stepper(windows)
    taken: list[tuple[int, KeptPieces]] = []

    def and_keep(rows: Sequence[Row], first: int, cut: Cut) -> Any:
        made = step(rows, first, cut)
        taken.append((cut.last, kept(windows)))
        return made

    outputs, points = run(and_keep, stream, steps)
    number = data.draw(st.integers(0, len(steps) - 1))
    # Downstream may have acknowledged more by the time that the state was kept.
    later = data.draw(st.integers(number, len(steps) - 1))
    last, state = taken[number]
    again = engine(panes, keys, calls, block)
    again.open(points[later].instant)
    again.restore(state)
    rest, stood = run(stepper(again), stream, draw_cuts(data, stream, last + 1), last)
    given = points[later].outputs
    assert bits(rest) == bits(outputs[given:])
    assert len(again._keys) == 0
    # What it says of a restart without any state holds as well.
    point = data.draw(st.sampled_from(stood))
    empty = engine(panes, keys, calls, block)
    empty.open(point.instant)
    replay = draw_cuts(data, stream, point.needless + 1)
    rest, _ = run(stepper(empty), stream, replay, point.needless)
    assert bits(rest) == bits(outputs[given + point.outputs :])


def test_what_is_closed_is_written_once(tmp_path: Path) -> None:
    stream = tuples(*range(400), n=[1] * 400, k=[str(n % 7) for n in range(400)])
    windows = engine(TimePanes(width_us=300, slide_us=10), ["k"], [call("SUM", "n")], 4)
    step, store = stepper(windows), SnapshotStore(RealFolder(tmp_path), "q")
    for number, last in enumerate(range(40, 401, 40), start=1):
        step(stream[last - 40 : last], last - 39, Cut(last, last))
        store.keep(SnapshotName(0, number, "a"), windows.snapshot())
    sizes = [store._folder.size(name) for name in store._folder.names() if "pieces" in name]
    assert len(sizes) == 10
    assert max(sizes) < 3 * min(sizes)
    assert len(store._manifests[SnapshotName(0, 10, "a")].places) > 20


SPREAD = """
class Range:
    def __init__(self, low, high):
        self.low, self.high = low, high

class Spread:
    def lift(self, n):
        return Range(n, n)

    def merge(self, a, b):
        assert isinstance(a, Range) and isinstance(b, Range)
        return Range(min(a.low, b.low), max(a.high, b.high))

    def lower(self, partial):
        return partial.high - partial.low
"""


def test_what_a_users_aggregate_holds_is_read_by_its_next_run(tmp_path: Path) -> None:
    """Its module is loaded anew then, and asks for its own classes."""
    (tmp_path / "spread.py").write_text(SPREAD)
    options = {"class": "spread:Spread", "base": str(tmp_path)}
    source = Call(name="python", options=options)
    call = AggregateCall(function="spread", arguments=(), name="s", type="bigint", source=source)
    before, _ = load_custom(call, pa.int64())
    after, _ = load_custom(call, pa.int64())
    partial = before.combine(before.lift(3), before.lift(10))
    found = after.unpack(before.pack(partial))
    assert type(found) is not type(partial)
    assert after.finish(after.combine(found, after.lift(1))) == 9
