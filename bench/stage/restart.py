"""A process with a large state is killed: how long until its successor gives results again.

`python -m bench.stage.restart ENGINE FOLDER STATE GOAL [spare]` runs one engine, with
Spark in the same process, over the files in FOLDER, its checkpoints in STATE, once it is told to on
standard input. GOAL is `keep`, which it says when all of them are in a checkpoint, or `output`,
which it says when it has results of what it had not had before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from anabranch.stage.messages import AwaitWindows, WriteCheckpoint
from anabranch.stream.batch import START_WATERMARK
from bench.stage import engines
from bench.stage.input import Workload, stage_over

Process = subprocess.Popen[str]
READY = "ready"


def restart_seconds(engine: str, files: Path, *, spare: bool = False) -> float:
    """From the death of a process that had all files but the last, until the last one's results are
    out of the next, which is started then; or, as a spare, waits with its Spark up."""
    names, scratch = sorted(files.iterdir()), scratch_folder()
    folder, state = scratch / "input", scratch / "state"
    folder.mkdir()
    try:
        for file in names[:-1]:
            (folder / file.name).symlink_to(file)
        with _process(engine, folder, state, "keep") as first:
            _reach(first, READY)
            _reach(first, "keep")
            if spare:
                with _process(engine, folder, state, "output", spare) as second:
                    _reach(second, READY, go=False)
                    os.killpg(first.pid, signal.SIGKILL)
                    (folder / names[-1].name).symlink_to(names[-1])
                    return _taken_over(second)
        (folder / names[-1].name).symlink_to(names[-1])
        begun = time.monotonic()
        with _process(engine, folder, state, "output") as second:
            _reach(second, READY)
            _reach(second, "output")
            return time.monotonic() - begun
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _taken_over(spare: Process) -> float:
    begun = time.monotonic()
    _go(spare)
    _reach(spare, "output")
    return time.monotonic() - begun


@contextmanager
def _process(
    engine: str, folder: Path, state: Path, goal: str, spare: bool = False
) -> Iterator[Process]:
    """Killed at the end, with all that it has started."""
    order = [sys.executable, "-m", "bench.stage.restart", engine]
    order += [str(folder), str(state), goal, *(["spare"] if spare else [])]
    with subprocess.Popen(
        order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _reach(process: Process, goal: str, *, go: bool = True) -> None:
    """Until it has come that far; one that is ready is told to `go` on."""
    assert process.stdout
    for line in process.stdout:
        if line.strip() == goal:
            if goal == READY and go:
                _go(process)
            return
    raise TaskError(f"a process of the restart ended before its {goal}")


def _go(process: Process) -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def main(engine: str, folder: Path, state: Path, goal: str, spare: bool) -> None:
    from anabranch.config.cluster import SiteConfig
    from anabranch.spark.own import OwnSpark
    from anabranch.spark.session import warm_workers

    spark = OwnSpark(SiteConfig(name="restart"), "restart").session
    if spare:
        warm_workers(spark)
    print(READY, flush=True)
    if not sys.stdin.readline():
        return
    (_stage if engine == "stage" else _spark)(spark, folder, state, goal)
    print(goal, flush=True)
    time.sleep(3600)  # until it is killed


def _stage(spark: Any, folder: Path, state: Path, goal: str) -> None:
    run = engines.stage_started(spark, stage_over(folder), 0.5, state)
    if goal == "output":
        next(iter(run.windows(START_WATERMARK)))
        return
    while not run.ask(AwaitWindows(START_WATERMARK, 1.0)).end:
        pass
    run.ask(WriteCheckpoint())


def _spark(spark: Any, folder: Path, state: Path, goal: str) -> None:
    workload = Workload("parquet", 0, 1.0, 0)
    query = engines.start_spark_own(spark, workload, folder, "spark", state)
    if goal == "keep":
        query.processAllAvailable()
        return
    while not any(one["numInputRows"] for one in query.recentProgress):
        if query.exception():
            raise TaskError(str(query.exception()))
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:] == ["spare"])
