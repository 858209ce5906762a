"""A query planned once, whose generated code runs on whatever Arrow comes."""

from __future__ import annotations

import os


import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.spark.kept.lane import Lane
from anabranch.spark.kept.service import ROWS
from anabranch.spark.kept.stages import Build

LANES = min(4, os.cpu_count() or 1)
"""Threads in the JVM that a large table is spread over at most."""


class KeptPlan:
    """Gives what `build(spark.createDataFrame(table)).toArrow()` would, rows and errors.

    Raises Unfit if that needs a job. Called by one thread at a time. What is more than one request
    goes to several lanes in turn; they are planned when it first comes."""

    def __init__(self, spark: SparkSession, schema: pa.Schema, build: Build) -> None:
        self._planned = spark, schema, build
        self._lanes = [Lane(spark, schema, build)]

    def __call__(self, table: pa.Table) -> pa.Table:
        first = self._lanes[0]
        pieces = _pieces(table.select(first.used))
        while len(self._lanes) < min(LANES, len(pieces)):
            self._lanes.append(Lane(*self._planned))
        lanes = self._lanes[: len(pieces)]
        try:
            for number, lane in enumerate(lanes):
                lane.request(pieces[number :: len(lanes)])
            answers = [lanes[number % len(lanes)].answer() for number in range(len(pieces))]
            found = [one for answer in answers for one in answer]
        except BaseException:
            self.close()  # what is on its way belongs to nobody
            raise
        finally:
            for lane in lanes:
                lane.settle()
        given = pa.Table.from_batches(found, first.sent)
        return given if first.sent.equals(first.output) else given.cast(first.output)

    def interrupt(self) -> None:
        """From any thread: what is being evaluated fails soon."""
        for lane in self._lanes:
            lane.interrupt()

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()


def _pieces(table: pa.Table) -> list[pa.RecordBatch]:
    """As few requests as it takes."""
    pieces = table.to_batches(max_chunksize=ROWS)
    few = len(table) // ROWS + 1
    return pieces if len(pieces) <= few else table.combine_chunks().to_batches(max_chunksize=ROWS)
