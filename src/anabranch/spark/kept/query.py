"""Any Spark SQL query over small inputs, planned once and evaluated without a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.inside import from_arrow_schema
from anabranch.spark.kept.kept_session import KeptSession
from anabranch.spark.kept.leaf import Leaf
from anabranch.spark.kept.physical import Unfit, prepared
from anabranch.spark.kept.plan import output_schema
from anabranch.spark.kept.program import KeptProgram
from anabranch.spark.kept.work import ROWS

Query = str | Callable[[Mapping[str, DataFrame]], DataFrame]
"""Text over views that are called as the inputs are, or what makes a DataFrame of theirs."""


class KeptQuery:
    """`evaluate(tables)` gives the rows and errors that a job over DataFrames of these tables
    would. Inputs and results lie in the memory of this process and of the JVM at once.

    Raises Unfit if the query is no function of its inputs, or needs a job, and what Spark raises if
    it does not take it."""

    def __init__(self, spark: SparkSession, inputs: Mapping[str, pa.Schema], query: Query) -> None:
        session = KeptSession.of(spark)
        if not session.tried:
            session.tried = True
            session.distrusted = session.distrusted or _trial(spark)
        if session.distrusted:
            raise Unfit(session.distrusted)
        leaves = {name: Leaf(session, from_arrow_schema(schema)) for name, schema in inputs.items()}
        frames = {name: leaf.frame for name, leaf in leaves.items()}
        frame = session.sql(query, frames) if isinstance(query, str) else query(frames)
        planned = prepared(session, frame, [leaf.rdd for leaf in leaves.values()])
        self.schema: pa.Schema = output_schema(frame)
        """That of the results."""
        self._sent = {name: leaf.sent for name, leaf in leaves.items()}
        self._program = KeptProgram(session, list(leaves.values()), planned, frame._jdf.schema())

    def evaluate(self, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Called by one thread at a time."""
        inputs = [_batches(tables[name], schema) for name, schema in self._sent.items()]
        ((*batches,),) = self._program.run([inputs])
        given = pa.Table.from_batches(batches, self._program.sent)
        return given if given.schema.equals(self.schema) else given.cast(self.schema)

    def interrupt(self) -> None:
        """From any thread: what is being evaluated fails soon."""
        self._program.interrupt()

    def abandon(self) -> None:
        """From any thread, without asking the JVM: what is being evaluated fails now, whatever the
        JVM goes on to do. Nothing can be evaluated after it."""
        self._program.abandon()

    def close(self) -> None:
        """Idempotent."""
        self._program.close()


_TRIAL = """SELECT a.k, count(*) AS c, (SELECT max(n) FROM b) AS m FROM a LEFT JOIN b ON a.k = b.k
    WHERE a.n > 0 GROUP BY a.k ORDER BY a.k"""
"""It has what is done by hand to Spark's plans: inputs, a join, a subquery, one partition."""


def _trial(spark: SparkSession) -> str:
    """Why whole queries cannot be kept in this Spark, if it gives another result than is known."""
    types = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    tables = {
        "a": pa.table({"k": [1, 2, 2, 3], "n": [1, 2, 3, 0]}, types),
        "b": pa.table({"k": [2, 2], "n": [5, 9]}, types),
    }
    try:
        kept = KeptQuery(spark, dict.fromkeys(tables, types), _TRIAL)
        given = kept.evaluate(tables).to_pylist()
        kept.close()
    except (PySparkException, Py4JError, TypeError, AttributeError, Unfit) as error:
        return f"this Spark does not plan as expected ({type(error).__name__})"
    wanted = [{"k": 1, "c": 1, "m": 9}, {"k": 2, "c": 4, "m": 9}]
    return "" if given == wanted else "this Spark evaluates kept queries to something else"


def _batches(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """In the types that Spark reads; none of them larger than Spark's own."""
    if not table.schema.equals(schema):
        table = table.cast(schema)
    batches: list[pa.RecordBatch] = table.to_batches(max_chunksize=ROWS)
    return batches
