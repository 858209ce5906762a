"""`anabranch prepare`: archive Spark's classes, so that every Spark from now on starts sooner."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.cli.show.tables import err, working
from anabranch.errors import SetupError
from anabranch.scratch import scratch_folder
from anabranch.spark.own import evaluate_small_query
from anabranch.spark.session import JVM_OPTIONS, archive_path, start_session, stop_session, writing

END_S = 120.0
"""A JVM that archives takes some seconds to end."""
QUICKER = "-XX:TieredStopAtLevel=1"
"""For a JVM that does everything once."""
ROWS = 50_000
"""So many bytes take another way into Spark than a few rows do."""
QUERIES = (
    "SELECT k, count(*) AS n, sum(x) AS s, avg(x) AS a, max(t) AS m FROM given GROUP BY k",
    "SELECT l.k, r.x FROM given l JOIN given r ON l.n = r.n WHERE l.k < 3 ORDER BY l.k, r.x",
    "SELECT upper(s) AS s, CAST(x AS DECIMAL(10, 2)) AS d, date_format(t, 'HH:mm') AS h,"
    " CASE WHEN n > 3 THEN s ELSE 'none' END AS c FROM given WHERE s LIKE 'a%' OR x IN (1, 2)",
)
"""What queries are made of: the classes that these load are archived."""


def prepare() -> None:
    archive = archive_path()
    scratch = scratch_folder()
    try:
        with working("Archiving Spark's classes (half a minute) …"):
            _make_folder(archive)
            size = _write(archive, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    err.print(f"Spark's classes are archived ({size >> 20} MB in {archive}).")


def _make_folder(archive: Path) -> None:
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot write {archive} ({error.strerror})",
            remedy="Run it as the owner of this Python environment.",
        ) from error


def _write(archive: Path, scratch: Path) -> int:
    """Writes the archive and returns its size in bytes. It is there whole or not at all."""
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    options = f"{writing(unfinished)} {QUICKER}"
    spark = start_session("local[2]", {JVM_OPTIONS: options}, "prepare", scratch)
    jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    try:
        evaluate_small_query(spark)
        _load_classes(spark)
        stop_session(spark)
        _hang_up(jvm)
        if not unfinished.is_file():
            raise SetupError(
                "Java wrote no archive of Spark's classes",
                remedy="Everything runs without it; Spark only takes longer to start.",
            )
        os.replace(unfinished, archive)
        return archive.stat().st_size
    finally:
        jvm.kill()  # one that we leave would still write
        jvm.wait()
        unfinished.unlink(missing_ok=True)


def _load_classes(spark: SparkSession) -> None:
    table = pa.table(
        {
            "k": [n % 7 for n in range(ROWS)],
            "n": pa.array(range(ROWS), pa.int64()),
            "x": [n / 3 for n in range(ROWS)],
            "s": [f"a{n % 11}" for n in range(ROWS)],
            "t": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
        }
    )
    spark.createDataFrame(table).createOrReplaceTempView("given")
    for query in QUERIES:
        spark.sql(query).toArrow()


def _hang_up(jvm: subprocess.Popen[bytes]) -> None:
    """Closes the JVM's input, upon which the JVM writes its archive and ends."""
    if jvm.stdin is not None:
        jvm.stdin.close()
    jvm.wait(END_S)
