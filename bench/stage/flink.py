"""Flink as a rival of `bench stage`: its own SQL, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import psutil
import pyspark

from anabranch.errors import TaskError
from bench.stage import flink_job
from bench.stage.engines import HEAP, Took, cpu_s
from bench.stage.input import Workload

PYTHON = "ANABRANCH_FLINK"
"""The environment variable with the path of a Python that has apache-flink."""
PARQUET = "ANABRANCH_FLINK_PARQUET"
"""The one with the path of flink-sql-parquet's jar, of the same version."""
LONGEST_S = 600
LOOK_S = 0.2


def _given(variable: str) -> str:
    """Empty if there is nothing there."""
    path = os.environ.get(variable, "")
    return path if path and Path(path).exists() else ""


def skipped(workload: Workload) -> str:
    """Why it does not run; empty if it does."""
    if not _given(PYTHON):
        return f"no Flink: {PYTHON} is to name a Python with apache-flink"
    if workload.input == "parquet" and not _given(PARQUET):
        return f"no Flink on Parquet: {PARQUET} is to name the jar of flink-sql-parquet"
    return ""


def flink(workload: Workload, folder: Path, first: Path, parallelism: int) -> Took:
    """From when the job runs until it has ended; results are given to nobody, and not compared. CPU
    seconds are those of the whole process and its JVM: their start, and the job over `first`,
    included."""
    form, jars = ("parquet", _parquet_jars()) if workload.input == "parquet" else ("csv", "")
    order = [_given(PYTHON), str(Path(flink_job.__file__)), str(parallelism), form, jars]
    order += [str(first), str(folder)]
    heap = os.environ | {"JVM_ARGS": f"-Xms{HEAP} -Xmx{HEAP} -XX:+UseG1GC"}
    with TemporaryFile("w+") as said, TemporaryFile("w+") as complaint:
        with subprocess.Popen(order, stdout=said, stderr=complaint, text=True, env=heap) as process:
            cpu = _watched(process)
        said.seek(0)
        complaint.seek(0)
        if process.returncode:
            raise TaskError(f"Flink failed: {complaint.read().strip().splitlines()[-1:]}")
        return Took(json.loads(said.read().strip().splitlines()[-1])["seconds"], cpu, 0, 0)


def _parquet_jars() -> str:
    """The format, and the parts of Hadoop that it wants, of which Spark has a copy."""
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    return ";".join(jar.resolve().as_uri() for jar in (Path(_given(PARQUET)), *hadoop))


def _watched(process: subprocess.Popen[str]) -> float:
    """The CPU seconds of `process` and all below it, once it has ended."""
    used: dict[int, float] = {}
    deadline = time.monotonic() + LONGEST_S
    while process.poll() is None:
        with suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            for one in (parent, *parent.children(recursive=True)):
                used[one.pid] = max(used.get(one.pid, 0.0), cpu_s(one))
        if time.monotonic() > deadline:
            process.kill()
            raise TaskError(f"Flink took more than {LONGEST_S} s")
        time.sleep(LOOK_S)
    return sum(used.values())
