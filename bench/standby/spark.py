"""Structured Streaming under a supervisor: how long is its output away after a SIGKILL?

The same selection at the same rate, from Spark's own rate source to its own file sink, with a
checkpoint, and in a JVM with the same options; restarted at once. Run as a program, this module is
the query.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from anabranch.config.model import YOUNG_JVM
from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from anabranch.spark.session import start_session
from bench.standby.queries import SENSORS, TPS
from bench.standby.site import longest_gap

STEADY = 8
"""Files before it is killed, one a second, which is how often Spark's rate source gives something:
it runs, and its JVM is warm."""
LIMIT_S = 180.0


def run() -> dict[str, Any]:
    """Seconds without output."""
    folder = scratch_folder()
    process: subprocess.Popen[bytes] | None = None
    seen = Files(folder / "out")
    try:
        process = _start(folder)
        seen.wait(STEADY, process)
        time.sleep(1.0)
        killed = time.time()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = _start(folder)
        seen.look()
        seen.wait(len(seen.instants) + 1, process)
        return {"spark_gap_s": longest_gap(seen.instants, killed)}
    finally:
        if process:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


class Files:
    """When each file of a sink appeared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: set[str] = set()
        self.instants: list[float] = []

    def look(self) -> None:
        if self._folder.is_dir():
            found = {name for name in os.listdir(self._folder) if name.startswith("part-")}
            if found - self._names:
                self.instants.append(time.time())
                self._names |= found

    def wait(self, count: int, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while len(self.instants) < count:
            if process.poll() is not None or time.monotonic() > deadline:
                raise TaskError("Structured Streaming did not get going")
            self.look()
            time.sleep(0.005)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, so that it dies whole."""
    command = [sys.executable, "-m", __name__, str(folder)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)


def _query(folder: Path) -> None:
    spark = start_session("local[1]", YOUNG_JVM, "supervised", folder / "spark")
    rate = spark.readStream.format("rate").option("rowsPerSecond", TPS).load()
    sensors = [f"{text} AS {name}" for name, text in SENSORS.items()]
    columns = ["value AS id", "unix_micros(timestamp) AS timestamp", *sensors]
    selected = rate.selectExpr(*columns)
    selected.withColumn("z", selected.z * 2).writeStream.format("json").option(
        "checkpointLocation", str(folder / "checkpoint")
    ).start(str(folder / "out")).awaitTermination()


if __name__ == "__main__":
    _query(Path(sys.argv[1]))
