"""A body's output is a function of its input sequence alone, however that is cut."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.link.wire import wire_schema
from anabranch.plan.operators import Condition, Item, Operator, Projection, Selection
from anabranch.site.tasks.body import SelectionBody, Taken
from anabranch.spark.kept.expressions import Expressions
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch
from tests.plan.samples import expr

INPUT = pa.schema([("n", pa.int64()), ("Temp", pa.float64()), ("a room", pa.string())])
OUTPUT = pa.schema([("room", pa.string()), ("f", pa.float64()), ("k", pa.int32())])
OPERATORS: list[Operator] = [
    Selection(condition=Condition(expr=expr("{} > 20 OR {} IS NULL", "Temp", "a room"))),
    Projection(
        items=(
            Item(expr=expr("upper({})", "a room"), name="room", type="string"),
            Item(expr=expr("{} * 1.8 + 32", "Temp"), name="f", type="double"),
            Item(expr=expr("CAST({} % 7 AS INT)", "n"), name="k", type="int"),
        )
    ),
]
ROWS = 400


def readings(rng: random.Random) -> pa.RecordBatch:
    columns = [
        list(range(ROWS)),
        [rng.choice([None, rng.uniform(0, 40)]) for _ in range(ROWS)],
        [rng.choice([None, "", "küche", "bath"]) for _ in range(ROWS)],
        [rng.randrange(100) for _ in range(ROWS)],
        list(range(ROWS, 2 * ROWS)),
    ]
    schema = wire_schema(INPUT)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def taken(data: pa.RecordBatch, bounds: list[int], watermark: int = START_WATERMARK) -> Taken:
    """Rows between the first and the last of `bounds`, as batches between each two of them."""
    pairs = pairwise(bounds)
    batches = [Batch("S", a + 1, watermark, 0, data.slice(a, b - a)) for a, b in pairs]
    return Taken(batches, bounds[-1], watermark)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cuts_do_not_show_in_the_results(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    body = SelectionBody(Expressions(spark), OPERATORS, INPUT, OUTPUT)
    data = readings(rng)
    whole = body.step([taken(data, [0, ROWS])]).table
    assert whole.schema == wire_schema(OUTPUT)
    assert 0 < len(whole) < ROWS
    assert whole.column("_born").to_pylist() == sorted(whole.column("_born").to_pylist())

    cuts = sorted(rng.sample(range(1, ROWS), 20))
    instances = [0, *sorted(rng.sample(cuts, 4)), ROWS]
    pieces = []
    for start, end in pairwise(instances):
        bounds = [start, *[cut for cut in cuts if start < cut < end], end]
        produced = body.step([taken(data, bounds, watermark=end)])
        assert (produced.watermark, produced.needless) == (end, (end,))
        pieces.append(produced.table)
    assert pa.concat_tables(pieces).equals(whole)


def test_a_watermark_alone_needs_no_job() -> None:
    no_spark: SparkSession = None  # type: ignore[assignment]
    body = SelectionBody(Expressions(no_spark), OPERATORS, INPUT, OUTPUT)
    produced = body.step([Taken([], 9, END_WATERMARK)])
    assert (len(produced.table), produced.watermark, produced.needless) == (0, END_WATERMARK, (9,))
    assert produced.table.schema == wire_schema(OUTPUT)
