"""Flink as a rival of `bench stage`: its own SQL, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from anabranch.bench.stage import flink_job
from anabranch.bench.stage.engines import Took, cpu_s_of_children
from anabranch.bench.stage.input import Workload
from anabranch.errors import TaskError

PYTHON = "ANABRANCH_FLINK"
"""The environment variable with the path of a Python that has apache-flink."""
LONGEST_S = 600


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
    are those of the whole process: its start, and a run before the one that counts, included."""
    before = cpu_s_of_children()
    done = subprocess.run(
        [python(), str(Path(flink_job.__file__)), str(folder)],
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise TaskError(f"Flink failed: {done.stderr.strip().splitlines()[-1:]}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return Took(told["seconds"], cpu_s_of_children() - before, 0, 0)
