"""The site's Spark session, the schemas that Spark and Arrow agree on, and the archive of
Spark's classes from which it starts.

A JVM that starts Spark loads some ten thousand classes, and spends half of its start on them. A JVM
that maps them from an archive (its class data sharing) does not. The JVM itself checks that the
archive fits the Java and the jars at hand, and does without it otherwise.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

import psutil
import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from anabranch.errors import SetupError
from anabranch.plan.operators import Column
from anabranch.spark.failures import cause
from anabranch.spark.inside import to_arrow_type
from anabranch.spark.jdk import use_java
from anabranch.spark.memory import give_memory_back, job_memory

WRITING = "-XX:ArchiveClassesAtExit="


def archive_path() -> Path:
    """The archive of this Python environment; it is removed together with the environment."""
    return Path(sys.prefix) / "share" / "anabranch" / f"spark-{pyspark.__version__}.jsa"


def using(archive: Path) -> str:
    """The Java option that uses it; empty if there is no archive."""
    return f"-XX:SharedArchiveFile={quoted(archive)}" if archive.is_file() else ""


def writing(archive: Path) -> str:
    """The Java option with which a JVM archives, when it ends, the classes it has loaded."""
    return f"{WRITING}{quoted(archive)}"


def quoted(path: Path) -> str:
    """The path quoted for Java options, which Spark splits at spaces."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


LOG = "spark.log"
JVM_OPTIONS = "spark.driver.extraJavaOptions"
_COMPLAINTS = "-Xlog:disable -Xlog:all=warning:stderr"
"""The JVM's own, by default on standard output, where our answers go."""
_SMALL_HEAP = "-XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
"""The heap grows only when less than a fifth is free after a full collection. By default it is two
fifths, and the heap reaches its limit sooner or later however small the jobs are."""
_SMALL_BUFFERS = "-Djdk.nio.maxCachedBufferSize=262144"
"""A thread that has once sent a large batch would keep a buffer of that size for life; and those
that evaluate kept plans live as long as these."""
_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_SECRET = re.compile(r"secret|password|token", re.IGNORECASE)
"""Settings of Spark whose value is nobody's business."""
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_FIRST_HEAP = "-Xms384m"
"""What jobs need anyway, on any machine (pages count once they are used), lest it collect all the
time on a small one."""
_SETTINGS = {
    # A task instance is one short job: planning and scheduling are most of its cost.
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    # A Spark task holds so much several times over, outside the heap. As on links: what comes as
    # one batch is one Spark task, and leaves as one. Larger ones are no faster.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.localRelationThreshold": "1048576",
    # Each kept plan looks its code up for every instance: all are to be found.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "512m",
}


def start_session(master: str, conf: Mapping[str, str], name: str, scratch: Path) -> SparkSession:
    """A session of this process. Raises SetupError if there is no JDK or Spark does not start. All
    files that Spark writes by itself are under `scratch`.
    """
    give_memory_back()
    use_java()
    os.environ.pop("SPARK_HOME", None)  # another Spark than the installed one would be loaded
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)  # which complains of a lost JVM to the root logger
    settings = {**_SETTINGS, **_scratch_settings(scratch)}
    if master.startswith("local"):
        # Executors are on this machine, and nobody else is to reach the driver.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Python workers need our packages; the first python3 on the PATH may lack them.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Other users of this machine reach these ports, too. The secret is a random one of Spark's,
        # which only for executors of their own wants to be given one.
        settings |= {"spark.authenticate": "true"}
        if master.startswith("local-cluster"):
            settings |= {"spark.authenticate.secret": secrets.token_hex(32)}
    settings = _merged(settings, conf)
    hidden = {key: value for key, value in settings.items() if _SECRET.search(key)}
    builder = SparkSession.builder.master(master).appName(f"anabranch {name}")
    for key in settings.keys() - hidden.keys():
        builder = builder.config(key, settings[key])
    try:
        with _stderr_to(scratch / LOG), _no_jvm_left(), _told_quietly(hidden, scratch):
            session = builder.getOrCreate()
        runtime = session.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        job_memory.heap_bytes = runtime.maxMemory()
        return session
    except Exception as error:
        raise SetupError(
            f"Spark did not start with master {master} ({_reason(error, scratch / LOG)})",
            remedy="Check `master` and `conf` in cluster.toml.",
        ) from error


@contextmanager
def _told_quietly(hidden: Mapping[str, str], scratch: Path) -> Iterator[None]:
    """Starts Spark with these settings in a file that only we can read: everybody on the machine
    sees the command that starts it.
    """
    if not hidden:
        yield
        return
    path = scratch / "spark.properties"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{key} {value}\n" for key, value in hidden.items())
    before = os.environ.get(_SUBMIT_ARGS)
    arguments = f"--properties-file {shlex.quote(str(path))} {before or 'pyspark-shell'}"
    os.environ[_SUBMIT_ARGS] = arguments
    try:
        yield
    finally:
        path.unlink()
        if before is None:
            del os.environ[_SUBMIT_ARGS]
        else:
            os.environ[_SUBMIT_ARGS] = before


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def _reason(error: Exception, log: Path) -> str:
    """The reason in one line. A JVM that gave up has ended and cannot be asked, but its log says
    why.
    """
    text = log.read_text(errors="replace") if log.exists() else ""
    thrown = re.search(r"^[\w.$]+(?:Exception|Error): (?:\[[A-Z_.]+\] )?(.+)", text, re.MULTILINE)
    if thrown:
        return thrown[1].rstrip(" .")
    return type(error).__name__ if isinstance(error, Py4JError) else cause(error)


@contextmanager
def _no_jvm_left() -> Iterator[None]:
    """Kills a JVM that we abandon while it starts, because it does not end by itself: its first
    word to us fails, and it waits for calls that nobody makes.
    """
    before = set(psutil.Process().children())
    try:
        yield
    except BaseException:
        for child in set(psutil.Process().children()) - before:
            with suppress(psutil.NoSuchProcess):
                if "pyspark-shell" in child.cmdline():
                    child.kill()
        raise


def guest_session(session: SparkSession) -> SparkSession:
    """A new session beside somebody else's `session`: the same Spark, with our settings of
    queries.
    """
    guest = session.newSession()
    for key, value in _SETTINGS.items():
        if key.startswith("spark.sql.") and guest.conf.isModifiable(key):
            guest.conf.set(key, value)
    guest.conf.set("spark.sql.ansi.enabled", "true")
    return guest


def _merged(settings: dict[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """The user's settings win; the JVM's options are added up."""
    wanted = conf.get(JVM_OPTIONS, "")
    options = [settings[JVM_OPTIONS]]
    if _COLLECTOR.search(wanted):  # a JVM refuses to start with two
        options = [_COLLECTOR.sub("", options[0])]
    if "spark.driver.memory" not in conf:
        options.append(_FIRST_HEAP)
    if WRITING not in wanted:  # a JVM does not write one archive while it uses another
        options.append(using(archive_path()))
    return {**settings, **conf, JVM_OPTIONS: " ".join([*options, wanted])}


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """A JVM that is started meanwhile writes its complaints to the log for life, not on the user's
    screen.
    """
    log.parent.mkdir(exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _scratch_settings(scratch: Path) -> dict[str, str]:
    log4j = Path(str(resources.files("anabranch.spark") / "log4j2.properties"))
    options = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Djava.io.tmpdir={quoted(scratch)}",
        f"-Dderby.system.home={quoted(scratch)}",
        "-XX:+UseSerialGC",
        _SMALL_HEAP,
        _SMALL_BUFFERS,
        _COMPLAINTS,
    ]
    return {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        JVM_OPTIONS: " ".join(options),
    }


def stop_session(session: SparkSession) -> None:
    """Stops the session, even if the JVM has died before us, as it does when a whole process group
    is signalled.
    """
    with suppress(Exception):
        session.stop()


def warm_workers(spark: SparkSession) -> None:
    """Makes Spark start its Python workers, which do the work of stages: the process that starts
    them stays, and the next ones take less than a second.
    """
    spark.sparkContext.parallelize(range(2), 2).map(abs).collect()


def spark_schema(columns: Iterable[Column]) -> StructType:
    """The columns as Spark's schema. Raises pyspark's ParseException for a type that Spark does not
    know.
    """
    return StructType([StructField(c.name, DataType.fromDDL(c.type)) for c in columns])


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow types that Spark gives and takes for these columns."""
    return pa.schema(
        [
            pa.field(f.name, to_arrow_type(f.dataType, timezone="UTC"))
            for f in spark_schema(columns).fields
        ]
    )
