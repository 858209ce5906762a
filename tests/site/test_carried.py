"""What of a kept plan stays in Python, and how it comes together again with what the JVM gave."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.spark.kept.plan import CarriedColumns, carried
from anabranch.spark.kept.trees import Origins

INPUTS = pa.schema(
    [("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64())), ("born", pa.int64())]
)
ROWS = [
    {"a": 1, "s": "x", "l": [1], "born": None},
    {"a": None, "s": None, "l": None, "born": 7},
    {"a": 3, "s": "z", "l": [], "born": 9},
]


def outputs(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


def test_without_a_condition_all_that_is_not_computed_stays() -> None:
    found = carried(
        Origins(["a", None, "s"], read={"a"}),
        INPUTS,
        outputs(a=pa.int64(), up=pa.string(), s=pa.string()),
    )
    assert found == CarriedColumns({0: "a", 2: "s"})
    assert [found.travels(place) for place in range(3)] == [False, True, False]


def test_another_type_is_computed() -> None:
    found = carried(Origins(["a"]), INPUTS, outputs(a=pa.int32()))
    assert found == CarriedColumns()


@pytest.mark.parametrize(
    ("read", "numbers"), [(set(), 0), ({"a"}, 2), ({"a", "born"}, None), ({"born"}, 0)]
)
def test_with_a_condition_numbers_take_the_place_of_what_nothing_is_computed_of(
    read: set[str], numbers: int | None
) -> None:
    columns = outputs(a=pa.int64(), s=pa.string(), born=pa.int64())
    found = carried(Origins(["a", "s", "born"], read, keeps_rows=False), INPUTS, columns)
    assert found == (
        CarriedColumns()
        if numbers is None
        else CarriedColumns({0: "a", 1: "s", 2: "born"}, numbers)
    )


def test_of_an_unknown_plan_nothing_stays() -> None:
    assert carried(None, INPUTS, INPUTS) == CarriedColumns()


@pytest.mark.parametrize("left", [[], [0], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("sliced", [False, True])
def test_rows_that_are_left_come_together_whatever_is_in_them(
    left: list[int], sliced: bool
) -> None:
    """The numbers travel in the place of `born`, whose own values are back in the end."""
    batch = pa.RecordBatch.from_pylist([*ROWS[:1], *ROWS] if sliced else ROWS, INPUTS)
    batch = batch.slice(1) if sliced else batch
    here = CarriedColumns({0: "l", 1: "born", 3: "s"}, numbers=1)
    output = outputs(l=pa.list_(pa.int64()), born=pa.int64(), n=pa.int32(), t=pa.string())
    sent = here.numbered(batch.select(["a", "born"]))
    assert sent.column("born").to_pylist() == [0, 1, 2]
    answer = pa.RecordBatch.from_pydict(
        {"c1": pa.array(left, pa.int64()), "c2": pa.array([10 * i for i in left], pa.int32())}
    )
    schema = here.schema(answer.schema, output)
    assert schema.equals(output)
    found = here.whole(batch, answer, schema).to_pylist()
    assert found == [
        {"l": ROWS[i]["l"], "born": ROWS[i]["born"], "n": 10 * i, "t": ROWS[i]["s"]} for i in left
    ]


def test_little_of_much_does_not_hold_it_all() -> None:
    """Columns that came over a link lie in one buffer."""
    wide = pa.RecordBatch.from_pydict({"blob": ["x" * 2_000] * 500, "born": list(range(500))})
    before = pa.total_allocated_bytes()
    came = pa.ipc.read_record_batch(pa.py_buffer(bytes(memoryview(wide.serialize()))), wide.schema)
    here, output = CarriedColumns({0: "born"}), outputs(born=pa.int64())
    nothing = pa.RecordBatch.from_pylist([], pa.schema([]))
    kept = here.whole(came.select(["born"]), nothing, output, came.nbytes)
    shared = here.whole(came.select(["born"]), nothing, output, 2 * came.select(["born"]).nbytes)
    assert kept.column(0).buffers()[1].address != came.column("born").buffers()[1].address
    assert shared.column(0).buffers()[1].address == came.column("born").buffers()[1].address
    assert kept.equals(shared)
    assert pa.total_allocated_bytes() - before < 100_000
