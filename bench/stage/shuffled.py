"""The stage with a shuffle in it: what the idea of a shared state is worth, in one engine.

Tuples go by key to as many tasks as there are slots before they are aggregated. All else is the
stage's: how it reads, aggregates, puts partials into the state, and gives results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise

import pyarrow as pa
from pyspark import TaskContext

from anabranch.link.peer import Peer
from anabranch.spark.inside import from_arrow_schema
from anabranch.stage.messages import CALL_S, Address, CountRange, Counts
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.process import ServerProcess
from anabranch.stage.run import StageRun, applied, cores, tuples_schema
from anabranch.stage.work import REPORT, Report, StageWork, put_range, read_range
from anabranch.stream.batch import START_WATERMARK


class ShuffledRun(StageRun):
    """Each range is a Spark job: a task that reads it, an exchange, and as many tasks as there are
    cores, each of which aggregates the tuples of its keys. As many jobs run beside each other."""

    def _job(self, server: ServerProcess, range: OffsetRange) -> Report:
        self._jobs.begin(f"{self._stage.input.stream}: {range}, shuffled")
        pieces = cut(range, cores(self._spark))
        work = self._work_for(server)
        tuples = self._spark.range(0, 1, 1, 1).mapInArrow(
            partial(read_range, work, range), from_arrow_schema(tuples_schema(self._stage))
        )
        keys = [f"_k{number}" for number, _ in enumerate(self._stage.aggregate.keys)]
        exchanged = applied(self._stage, tuples).repartition(len(pieces), *keys)
        puts = exchanged.mapInArrow(partial(put_piece, work, pieces), from_arrow_schema(REPORT))
        return summed(Report(**row.asDict()) for row in puts.collect())


def cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """`whole` in as many ranges of about one length, or fewer if it is too short for that."""
    length = whole.end - whole.begin
    pieces = min(pieces, length)
    bounds = [whole.begin + length * n // pieces for n in range(pieces + 1)]
    return [OffsetRange(whole.partition, begin, end) for begin, end in pairwise(bounds)]


def put_piece(
    work: StageWork, pieces: list[OffsetRange], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The keys of this task; the state takes them in the place of one of the pieces. No tuple is
    late here, so nobody needs to know the newest of a piece."""
    context = TaskContext.get()
    assert context
    tuples, piece = list(batches), pieces[context.partitionId()]
    counts = Counts(START_WATERMARK, sum(batch.num_rows for batch in tuples), 0)
    _server(work.address).send(CountRange(piece, counts), CALL_S)
    return put_range(work, piece, tuples)


@lru_cache(2)
def _server(address: tuple[int, str]) -> Peer:
    port, token = address
    return Address(port=port, token=token).peer()


def summed(reports: Iterable[Report]) -> Report:
    total = Report()
    for report in reports:
        error = total.error or (json.loads(report.error) if report.error else None)
        total = replace(
            total,
            rows=total.rows + report.rows,
            partials=total.partials + report.partials,
            aggregate_s=total.aggregate_s + report.aggregate_s,
            put_s=total.put_s + report.put_s,
            error=error,
        )
    return total
