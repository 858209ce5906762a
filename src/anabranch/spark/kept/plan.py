"""A query planned once, whose generated code runs on whatever Arrow comes; columns that it hands
on as they are do not go through the JVM.

What a query computes is sent there and comes back; the rest stays here. Where rows are left out,
their numbers make the way in the place of a column that nothing is computed of: those that come
back are the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from anabranch.link.wire import apart
from anabranch.plan.expressions import quoted
from anabranch.spark.inside import from_arrow_schema, to_arrow_schema
from anabranch.spark.kept.kept_session import KeptSession
from anabranch.spark.kept.leaf import Leaf
from anabranch.spark.kept.physical import Prepared, Unfit, prepared
from anabranch.spark.kept.program import KeptProgram
from anabranch.spark.kept.trees import Origins, origins
from anabranch.spark.kept.work import ROWS

Build = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class CarriedColumns:
    """`outputs` maps places to the input columns that they are. `numbers` is the place in which row
    numbers come back; None if every row stays.
    """

    outputs: Mapping[int, str] = field(default_factory=dict)
    numbers: int | None = None

    @property
    def names(self) -> list[str]:
        """The input columns that are needed here."""
        return list(dict.fromkeys(self.outputs.values()))

    def travels(self, place: int) -> bool:
        return place not in self.outputs or place == self.numbers

    def rest(self, build: Build) -> Build:
        """`build` without the outputs that stay here."""
        return (lambda frame: _those(build(frame), self.travels)) if self.outputs else build

    def schema(self, sent: pa.Schema, output: pa.Schema) -> pa.Schema:
        """The schema of what `whole` gives: what comes back has the types that it was sent in."""
        back = iter(sent)
        fields = [next(back) if self.travels(i) else one for i, one in enumerate(output)]
        if self.numbers is not None:
            fields[self.numbers] = output.field(self.numbers)
        return pa.schema([f.with_name(o.name) for f, o in zip(fields, output, strict=True)])

    def numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` in the form in which it is sent."""
        if self.numbers is None:
            return batch
        at = batch.schema.get_field_index(self.outputs[self.numbers])
        return batch.set_column(at, batch.schema.field(at), pa.array(np.arange(batch.num_rows)))

    def whole(
        self, batch: pa.RecordBatch, back: pa.RecordBatch, schema: pa.Schema, nbytes: int = 0
    ) -> pa.RecordBatch:
        """All outputs, from what was sent and what came back. `batch` was cut from this many bytes,
        which the outputs must not keep in memory if they are much smaller.
        """
        columns = iter(back.columns)
        places = range(len(schema))
        found = {place: next(columns) for place in places if self.travels(place)}
        stayed = batch.select(self.names)
        if self.numbers is not None and back.num_rows < batch.num_rows:
            stayed = stayed.take(found[self.numbers])
        else:
            stayed = apart(stayed, nbytes)
        found |= {place: stayed.column(name) for place, name in self.outputs.items()}
        return pa.RecordBatch.from_arrays([found[place] for place in places], schema=schema)


def carried(origins: Origins | None, inputs: pa.Schema, outputs: pa.Schema) -> CarriedColumns:
    """The columns of a plan that need not travel."""
    if origins is None:
        return CarriedColumns()
    same = {
        place: name
        for place, name in enumerate(origins.outputs)
        if name is not None and inputs.field(name).type.equals(outputs.field(place).type)
    }
    if origins.keeps_rows:
        return CarriedColumns(same)
    numbers = (
        place
        for place, name in same.items()
        if name not in origins.read and inputs.field(name).type.equals(pa.int64())
    )
    first = next(numbers, None)
    return CarriedColumns() if first is None else CarriedColumns(same, first)


def used(origins: Origins | None, here: CarriedColumns, names: Sequence[str]) -> list[str]:
    """Those of the input columns `names` that are sent; at least one, which tells how many rows
    there are; all, for a plan that nothing is known of.
    """
    if origins is None:
        return list(names)
    handed_on = (name for place, name in enumerate(origins.outputs) if here.travels(place))
    wanted = {*origins.read, *filter(None, handed_on)}
    return [name for name in names if name in wanted] or list(names[:1])


def _those(frame: DataFrame, wanted: Callable[[int], bool]) -> DataFrame:
    """The columns at the places `wanted`. Two may have one name, so they get other names here."""
    names = [f"c{place}" for place in range(len(frame.columns))]
    kept = [col(name) for place, name in enumerate(names) if wanted(place)]
    return frame.toDF(*names).select(*kept)


class KeptPlan:
    """Gives what `build(spark.createDataFrame(table)).toArrow()` would, rows and errors.

    Raises Unfit if that needs a job. Called by one thread at a time."""

    def __init__(self, spark: SparkSession, schema: pa.Schema, build: Build) -> None:
        self._session = KeptSession.of(spark)
        if self._session.distrusted:
            raise Unfit(self._session.distrusted)
        leaf, frame, planned = self._planned(schema, build)
        self._output = output_schema(frame)
        found = origins(planned.plan, schema.names)
        self._carried = carried(found, schema, self._output)
        self._used = used(found, self._carried, schema.names)
        self._needed = [n for n in schema.names if n in {*self._used, *self._carried.names}]
        if self._carried.outputs or len(self._used) < len(schema):
            leaf, frame, planned = self._lean(schema, build)
        self._row_wise = planned.row_wise
        self._program = KeptProgram(self._session, [leaf], planned, frame._jdf.schema())
        self._sent = self._program.sent
        self._whole = self._carried.schema(self._sent, self._output)

    def _planned(
        self, schema: pa.Schema, build: Build, whole: pa.Schema | None = None
    ) -> tuple[Leaf, DataFrame, Prepared]:
        leaf = Leaf(self._session, from_arrow_schema(schema))
        frame = build(_widened(leaf.frame, whole) if whole else leaf.frame)
        return leaf, frame, prepared(self._session, frame, [leaf.rdd])

    def _lean(self, schema: pa.Schema, build: Build) -> tuple[Leaf, DataFrame, Prepared]:
        """Without the outputs that stay here, and without the inputs that are only for those."""
        lean = pa.schema([schema.field(name) for name in self._used])
        try:
            return self._planned(lean, self._carried.rest(build), schema)
        except AnalysisException as error:  # of a plan that the user has not written
            raise Unfit(f"Spark does not take a part of it ({error.getCondition()})") from None

    @property
    def abandoned(self) -> bool:
        """It evaluates nothing any more."""
        return self._program.abandoned

    def __call__(self, table: pa.Table) -> pa.Table:
        table = table.select(self._needed)
        if self._carried.outputs:
            found = self._with_carried(table)
        else:
            pieces = _pieces(table)
            requests = [[[one]] for one in pieces] if self._row_wise else [[pieces]]
            found = [one for some in self._program.run(requests) for one in some]
        given = pa.Table.from_batches(found, self._whole)
        return given if self._whole.equals(self._output) else given.cast(self._output)

    def _with_carried(self, table: pa.Table) -> list[pa.RecordBatch]:
        each = table.nbytes / max(len(table), 1)
        pieces = _pieces(table)
        answers = [[] for _ in pieces] if not self._sent.names else self._answers(pieces)
        return [
            self._carried.whole(
                piece, _joined(answer, self._sent), self._whole, int(piece.num_rows * each)
            )
            for piece, answer in zip(pieces, answers, strict=True)
        ]

    def _answers(self, pieces: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        sent = [self._carried.numbered(piece.select(self._used)) for piece in pieces]
        return self._program.run([[[one]] for one in sent])

    def interrupt(self) -> None:
        """From any thread: what is being evaluated fails soon."""
        self._program.interrupt()

    def abandon(self) -> None:
        """From any thread, without asking the JVM: what is being evaluated fails now, whatever the
        JVM goes on to do."""
        self._program.abandon()

    def close(self) -> None:
        """Idempotent."""
        self._program.close()


def output_schema(frame: DataFrame) -> pa.Schema:
    """That of `frame.toArrow()`."""
    return to_arrow_schema(
        frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC"
    )


def _widened(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The frame with all columns of `schema`; those that it lacks are NULL, because nothing is
    computed from them.
    """
    there = set(frame.columns)
    if there == set(schema.names):
        return frame
    return frame.select(
        *(
            expr(quoted(one.name))
            if one.name in there
            else expr("NULL").cast(one.dataType).alias(one.name)
            for one in from_arrow_schema(schema)
        )
    )


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


def _pieces(table: pa.Table) -> list[pa.RecordBatch]:
    """The pieces of the table, for as few requests as possible."""
    pieces: list[pa.RecordBatch] = table.to_batches(max_chunksize=ROWS)
    if len(pieces) > len(table) // ROWS + 1:
        pieces = table.combine_chunks().to_batches(max_chunksize=ROWS)
    return pieces
