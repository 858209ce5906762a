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

from anabranch.errors import TaskError
from bench.stage import flink_job
from bench.stage.engines import Took, cpu_s
from bench.stage.input import Workload

PYTHON = "ANABRANCH_FLINK"
"""The environment variable with the path of a Python that has apache-flink."""
LONGEST_S = 600
LOOK_S = 0.2


def python() -> str:
    """Empty if there is none."""
    given = os.environ.get(PYTHON, "")
    return given if given and Path(given).exists() else ""


def skipped(workload: Workload) -> str:
    """Why it does not run; empty if it does."""
    if not python():
        return f"no Flink: {PYTHON} is to name a Python with apache-flink"
    if workload.input == "parquet":
        return "no Flink on Parquet: apache-flink comes without that format"
    return ""


def flink(workload: Workload, folder: Path) -> Took:
    """From when the job is submitted; results are given to nobody, and not compared. CPU seconds
    are those of the whole process and its JVM: their start, and a run before the one that counts,
    included."""
    order = [python(), str(Path(flink_job.__file__)), str(folder)]
    with TemporaryFile("w+") as said, TemporaryFile("w+") as complaint:
        with subprocess.Popen(order, stdout=said, stderr=complaint, text=True) as process:
            cpu = _watched(process)
        said.seek(0)
        complaint.seek(0)
        if process.returncode:
            raise TaskError(f"Flink failed: {complaint.read().strip().splitlines()[-1:]}")
        return Took(json.loads(said.read().strip().splitlines()[-1])["seconds"], cpu, 0, 0)


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
