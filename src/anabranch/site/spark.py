"""The site's Spark session, and the schemas that Spark and Arrow agree on."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

import psutil
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from anabranch.errors import SetupError
from anabranch.plan.operators import Column
from anabranch.site.cause import cause
from anabranch.site.jdk import use_java

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of <malloc.h>
_LARGE_BUFFER = 256 << 10
_JVM_MALLOC = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BUFFER),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}
"""For the JVM what `give_memory_back` is for us: it keeps Arrow's vectors outside its heap."""
_HEAP_PER_INPUT = 8
"""Heap of a job per byte of its Arrow input: the input, its rows, the result, and slack."""
LOG = "spark.log"
_JVM_OPTIONS = "spark.driver.extraJavaOptions"
_SMALL_HEAP = "-XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
"""The heap grows only when less than a fifth is free after a full collection. By default it is two
fifths, and the heap reaches its limit sooner or later however small the jobs are."""
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
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "512m",
}


def start_session(master: str, conf: Mapping[str, str], name: str, scratch: Path) -> SparkSession:
    """A session of this process. Raises SetupError if there is no JDK or Spark does not start.

    All that Spark writes by itself goes under `scratch`.
    """
    give_memory_back()
    for variable, value in _JVM_MALLOC.items():
        os.environ.setdefault(variable, value)
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
    builder = SparkSession.builder.master(master).appName(f"anabranch {name}")
    for key, value in _merged(settings, conf).items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(scratch / LOG), _no_jvm_left():
            session = builder.getOrCreate()
        runtime = session.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        job_memory.heap_bytes = runtime.maxMemory()
        return session
    except Exception as error:
        raise SetupError(
            f"Spark did not start with master {master} ({_reason(error, scratch / LOG)})",
            remedy="Check `master` and `conf` in cluster.toml.",
        ) from error


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def _reason(error: Exception, log: Path) -> str:
    """In one line. A JVM that gave up has been ended and cannot be asked: its log knows why."""
    told = log.read_text(errors="replace") if log.exists() else ""
    thrown = re.search(r"^[\w.$]+(?:Exception|Error): (?:\[[A-Z_.]+\] )?(.+)", told, re.MULTILINE)
    if thrown:
        return thrown[1].rstrip(" .")
    return type(error).__name__ if isinstance(error, Py4JError) else cause(error)


@contextmanager
def _no_jvm_left() -> Iterator[None]:
    """A JVM that we leave while it starts does not end by itself: its first word to us fails, and
    it waits for calls that nobody makes."""
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
    """One beside a `session` that is another's: the same Spark, with our settings of queries."""
    guest = session.newSession()
    for key, value in _SETTINGS.items():
        if key.startswith("spark.sql."):
            guest.conf.set(key, value)
    guest.conf.set("spark.sql.ansi.enabled", "true")
    return guest


def _merged(settings: dict[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """The user's settings win; the JVM's options are added up."""
    first = "" if "spark.driver.memory" in conf else _FIRST_HEAP
    options = " ".join([settings[_JVM_OPTIONS], first, conf.get(_JVM_OPTIONS, "")]).strip()
    return {**settings, **conf, _JVM_OPTIONS: options}


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """The JVM started meanwhile writes its complaints there for life, not on the user's screen."""
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
    log4j = resources.files("anabranch.site") / "log4j2.properties"
    return {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        _JVM_OPTIONS: (
            f"-Dlog4j2.configurationFile=file:{log4j} -Djava.io.tmpdir={scratch}"
            f" -Dderby.system.home={scratch} -XX:+UseSerialGC {_SMALL_HEAP}"
        ),
    }


def scratch_folder() -> Path:
    """A new temporary folder; whoever asked for it removes it."""
    return Path(tempfile.mkdtemp(prefix="anabranch-"))


def stop_session(session: SparkSession) -> None:
    """Also when the JVM has died before us, as it does when a whole process group is signalled."""
    with suppress(Exception):
        session.stop()


def give_memory_back() -> None:
    """Let glibc return the large buffers of links to the system, instead of keeping them in one
    arena per thread. Elsewhere than on glibc there is nothing to do.

    A column of a batch is 512 KB: the threshold lies below, and Arrow allocates with glibc as well.
    In a chain of sites that took 130 MB less than Arrow's own allocator and 1 MB.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        pa.set_memory_pool(pa.system_memory_pool())
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER)
        libc.mallopt(_M_ARENA_MAX, 2)


def _trim() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class JobMemory:
    """Keeps the jobs of all sites in this process within the one JVM heap they share.

    Jobs that would not fit beside those running wait. And py4j's objects are reference cycles, so
    the JVM keeps a finished job's data until Python's cyclic collector runs, which counts objects
    and not the megabytes behind them: so it is told, every `collect_bytes` of input. (What exists
    after warm-up is frozen out of collections, which makes one take a millisecond.) Pages of ours
    that lie free between small buffers go back to the system then as well.
    """

    def __init__(self, heap_bytes: int = 512 << 20, collect_bytes: int = 16_000_000) -> None:
        self.heap_bytes = heap_bytes
        self._collect_bytes = collect_bytes
        self._running = 0
        self._finished = 0
        self._changed = threading.Condition()

    @contextmanager
    def job(self, input_bytes: int) -> Iterator[None]:
        """Around a job, from reading its input to having its result; blocks until it fits."""
        needed = input_bytes * _HEAP_PER_INPUT
        with self._changed:
            while self._running and self._running + needed > self.heap_bytes:
                self._changed.wait()
            self._running += needed
        try:
            yield
        finally:
            self._end(needed, input_bytes)

    def _end(self, needed: int, input_bytes: int) -> None:
        with self._changed:
            self._running -= needed
            self._finished += input_bytes
            collect = self._finished >= self._collect_bytes
            if collect:
                self._finished = 0
            self._changed.notify_all()
        if collect:
            gc.collect()
            _trim()


job_memory = JobMemory()
"""Of this process."""

_warm = threading.Lock()
_warmed: set[int] = set()


def warm_up(spark: SparkSession, jobs: int = 12) -> None:
    """Run small jobs until the first real one no longer pays for class loading. Once a session."""
    with _warm:
        if id(spark) in _warmed:
            return
        table = pa.table({"n": range(100), "x": [0.5] * 100, "s": ["a"] * 100})
        for _ in range(jobs):
            frame = spark.createDataFrame(table).alias("t").where("t.n > 1 AND x < 2")
            frame.selectExpr("n + 1 AS n", "x * 2 AS x", "upper(s) AS s").toArrow()
        _warmed.add(id(spark))
        gc.freeze()


def spark_schema(columns: Iterable[Column]) -> StructType:
    """Raises pyspark's ParseException for a type Spark does not know."""
    return StructType([StructField(c.name, DataType.fromDDL(c.type)) for c in columns])


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow types that Spark gives and takes for these columns."""
    return pa.schema(
        [
            pa.field(f.name, to_arrow_type(f.dataType, timezone="UTC"))
            for f in spark_schema(columns).fields
        ]
    )
