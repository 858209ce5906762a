"""Columns that a plan hands on as they are need not go through the JVM.

What a query computes is sent there and comes back; the rest stays here. Where rows are left out,
their numbers make the way in the place of a column that nothing is computed of: those that come
back are the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from anabranch.link.wire import apart
from anabranch.spark.kept.stages import Build, Origins


@dataclass(frozen=True)
class Carried:
    """`outputs`: by their place, the input columns that they are. `numbers`: the place of the one
    among them that row numbers come back in; None if every row stays."""

    outputs: Mapping[int, str] = field(default_factory=dict)
    numbers: int | None = None

    @property
    def names(self) -> list[str]:
        """Input columns that are needed here."""
        return list(dict.fromkeys(self.outputs.values()))

    def travels(self, place: int) -> bool:
        return place not in self.outputs or place == self.numbers

    def rest(self, build: Build) -> Build:
        """`build` without the outputs that stay here."""
        return (lambda frame: _those(build(frame), self.travels)) if self.outputs else build

    def schema(self, sent: pa.Schema, output: pa.Schema) -> pa.Schema:
        """Of what `whole` gives: what comes back has the types that it was sent in."""
        back = iter(sent)
        fields = [next(back) if self.travels(i) else one for i, one in enumerate(output)]
        if self.numbers is not None:
            fields[self.numbers] = output.field(self.numbers)
        return pa.schema([f.with_name(o.name) for f, o in zip(fields, output, strict=True)])

    def numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` as it is sent."""
        if self.numbers is None:
            return batch
        at = batch.schema.get_field_index(self.outputs[self.numbers])
        return batch.set_column(at, batch.schema.field(at), pa.array(np.arange(batch.num_rows)))

    def whole(
        self, batch: pa.RecordBatch, back: pa.RecordBatch, schema: pa.Schema, nbytes: int = 0
    ) -> pa.RecordBatch:
        """All outputs, of what was sent and what came back of it. `batch` was taken from so many
        bytes, which the outputs are not to hold if they are much less."""
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


def carried(origins: Origins | None, inputs: pa.Schema, outputs: pa.Schema) -> Carried:
    """What need not travel of a plan."""
    if origins is None:
        return Carried()
    same = {
        place: name
        for place, name in enumerate(origins.outputs)
        if name is not None and inputs.field(name).type.equals(outputs.field(place).type)
    }
    if origins.keeps_rows:
        return Carried(same)
    numbers = (
        place
        for place, name in same.items()
        if name not in origins.read and inputs.field(name).type.equals(pa.int64())
    )
    first = next(numbers, None)
    return Carried() if first is None else Carried(same, first)


def used(origins: Origins | None, here: Carried, names: Sequence[str]) -> list[str]:
    """Those of the input columns `names` that are sent; one at least, which tells how many rows
    there are; all, of a plan that nothing is known of."""
    if origins is None:
        return list(names)
    handed_on = (name for place, name in enumerate(origins.outputs) if here.travels(place))
    wanted = {*origins.read, *filter(None, handed_on)}
    return [name for name in names if name in wanted] or list(names[:1])


def _those(frame: DataFrame, wanted: Callable[[int], bool]) -> DataFrame:
    """The columns at the places `wanted`. Two may have one name, so they go by others here."""
    names = [f"c{place}" for place in range(len(frame.columns))]
    kept = [col(name) for place, name in enumerate(names) if wanted(place)]
    return frame.toDF(*names).select(*kept)
