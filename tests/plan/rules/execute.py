"""Runs the nodes of a query on whole streams, without sites: bodies one behind the other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.link.wire import wire_schema
from anabranch.plan.operators import Aggregate, Join, Node, Operator, Selection
from anabranch.site.tasks.aggregate import AggregateBody
from anabranch.site.tasks.body import Body, SelectionBody, Taken
from anabranch.site.tasks.join import JoinBody
from anabranch.spark.kept.expressions import Expressions
from anabranch.spark.session import arrow_schema
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK, Batch


@dataclass(frozen=True)
class Piece:
    """Some tuples of a stream in order, and the watermark behind them."""

    table: pa.Table
    watermark: int


Stream = Sequence[Piece]


def cut(table: pa.Table, lateness_us: int, rng: random.Random) -> list[Piece]:
    """A stream from outside in random pieces: as its source would give it."""
    ts, newest, start = table.column("_ts").to_pylist(), START_WATERMARK, 0
    pieces: list[Piece] = []
    while start < len(table):
        end = min(len(table), start + rng.randint(1, 12))
        newest = max(newest, *ts[start:end])
        pieces.append(Piece(table.slice(start, end - start), newest - lateness_us))
        start = end
    return [*pieces, Piece(table.slice(0, 0), END_WATERMARK)]


def run(
    spark: SparkSession,
    nodes: Sequence[Node],
    streams: Mapping[str, Stream],
    columns: Mapping[str, pa.Schema],
    rng: random.Random,
) -> pa.Table:
    """The output of the last of `nodes`, whatever order the pieces of its inputs come in."""
    known, schemas = dict(streams), dict(columns)
    for node in nodes:
        schemas[node.name] = arrow_schema(node.columns)
        inputs = [(port.alias, schemas[port.stream]) for port in node.inputs]
        feeds = [known[port.stream] for port in node.inputs]
        while len(node.operators) > 1 and _selects_before_aggregate(node):
            first, *rest = node.operators
            ((_, schema),) = inputs
            feeds = [_fed(_body(spark, (first,), inputs, schema), feeds, [schema], rng)]
            node = node.model_copy(update={"operators": tuple(rest)})
        body = _body(spark, node.operators, inputs, schemas[node.name])
        known[node.name] = _fed(body, feeds, [schema for _, schema in inputs], rng)
    tables = [piece.table for piece in known[nodes[-1].name]]
    return pa.concat_tables(tables)


def _selects_before_aggregate(node: Node) -> bool:
    aggregates = any(isinstance(one, Aggregate) for one in node.operators)
    return aggregates and isinstance(node.operators[0], Selection)


def _body(
    spark: SparkSession,
    operators: Sequence[Operator],
    inputs: Sequence[tuple[str, pa.Schema]],
    output: pa.Schema,
) -> Body:
    """Ready to begin. Planning takes longer than running: what was made before begins anew."""
    key = (id(spark), tuple(operators), tuple(inputs), output)
    if key not in _BODIES:
        body = _BODIES[key] = _made(Expressions(spark), operators, inputs, output)
        body.open()
    _BODIES[key].reopen(START_WATERMARK)
    return _BODIES[key]


_BODIES: dict[object, Body] = {}


def _made(
    expressions: Expressions,
    operators: Sequence[Operator],
    inputs: Sequence[tuple[str, pa.Schema]],
    output: pa.Schema,
) -> Body:
    if isinstance(operators[0], Join):
        return JoinBody(expressions, inputs, operators, output)
    ((alias, schema),) = inputs
    if isinstance(operators[0], Aggregate):
        return AggregateBody(expressions, alias, schema, operators, output)
    return SelectionBody(expressions, operators, schema, output)


def _fed(
    body: Body, feeds: list[Stream], schemas: list[pa.Schema], rng: random.Random
) -> list[Piece]:
    produced: list[Piece] = []
    left = [list(feed) for feed in feeds]
    last = [0] * len(feeds)
    marks = [START_WATERMARK] * len(feeds)
    while any(left):
        taken = [Taken([], last[i], marks[i]) for i in range(len(feeds))]
        for i in [i for i in range(len(left)) if left[i]]:
            for _ in range(rng.choice([0, 1, 5, len(left[i])])):
                if left[i]:
                    piece = left[i].pop(0)
                    taken[i] = _more(taken[i], piece, wire_schema(schemas[i]))
            last[i], marks[i] = taken[i].last, taken[i].watermark
        step = body.step(taken)
        produced.append(Piece(step.table, step.watermark))
        while step.more:
            step = body.step([Taken([], last[i], marks[i]) for i in range(len(feeds))])
            produced.append(Piece(step.table, step.watermark))
    return produced


def _more(taken: Taken, piece: Piece, schema: pa.Schema) -> Taken:
    watermark = max(taken.watermark, piece.watermark)
    batches, last = list(taken.batches), taken.last
    for data in piece.table.select(schema.names).cast(schema).combine_chunks().to_batches():
        if data.num_rows:
            batches.append(Batch("S", last + 1, watermark, 0, data))
            last += data.num_rows
    return Taken(batches, last, watermark)
