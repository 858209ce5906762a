"""What a task will cost, tried out on made-up tuples."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from anabranch.errors import TaskError
from anabranch.site.tasks.body import Produced, Taken
from anabranch.site.tasks.calibration import calibrated, made_up
from tests.site.fakes import SCHEMA, FakeBody


class Costly(FakeBody):
    """Takes so long by its own clock; the first instances ten times as long."""

    def __init__(self, fixed: float, per_tuple: float) -> None:
        super().__init__()
        self.now = 0.0
        self._fixed, self._per_tuple = fixed, per_tuple
        self._cold = 5 if per_tuple < 0.1 else 0  # such a one is not run so often
        self.positions: list[int] = []

    def step(self, inputs: Sequence[Taken]) -> Produced:
        rows = inputs[0].rows
        factor = 10 if self._cold > 0 else 1
        self._cold -= 1
        self.now += factor * (self._fixed + self._per_tuple * rows)
        self.positions.append(inputs[0].last - rows + 1)
        return super().step(inputs)


def at_once(do: Callable[[], float]) -> float:
    return do()


@pytest.mark.parametrize(("fixed", "per_tuple"), [(0.001, 20e-6), (0.004, 0.001), (0.0, 0.2)])
def test_both_parts_of_the_cost_are_found(fixed: float, per_tuple: float) -> None:
    body = Costly(fixed, per_tuple)
    cost = calibrated(body, [SCHEMA], at_once, lambda: body.now)
    assert cost is not None
    assert cost.fixed == pytest.approx(fixed, abs=1e-6)
    assert cost.per_tuple == pytest.approx(per_tuple, rel=1e-3)
    assert (body.opened, body.closed) == (1, 1)
    assert body.positions[:2] == [1, 2]  # as a stream brings them
    assert body.now < 4 + 40 * per_tuple


def test_what_cannot_be_tried_is_not_known() -> None:
    def refuse() -> None:
        raise TaskError("no such tuples")

    body = FakeBody(during=refuse)
    assert calibrated(body, [SCHEMA], at_once) is None
    assert calibrated(FakeBody(), [SCHEMA], lambda do: None) is None  # no slot is free
    assert body.closed == 1


def test_tuples_of_all_types_are_made_up() -> None:
    schema = pa.schema(
        [
            ("b", pa.bool_()),
            ("i", pa.int8()),
            ("l", pa.int64()),
            ("f", pa.float32()),
            ("d", pa.decimal128(3, 2)),
            ("s", pa.string()),
            ("x", pa.binary()),
            ("day", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("many", pa.list_(pa.int32())),
            ("part", pa.struct([("a", pa.string())])),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("odd", pa.month_day_nano_interval()),
            ("_ts", pa.int64()),
            ("_born", pa.int64()),
        ]
    )
    batch = made_up(schema, 1, 300)
    assert batch.schema == schema
    assert batch.num_rows == 300
    first = batch.slice(0, 1).to_pylist()[0]
    assert first["day"] == datetime.date(2026, 1, 3)
    assert [name for name, value in first.items() if value is None] == ["odd"]
    assert batch.column("_ts").to_pylist() == sorted(batch.column("_ts").to_pylist())
