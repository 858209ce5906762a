"""A process with a large state is killed: how long until its successor gives results again.

`python -m anabranch.bench.stage.restart ENGINE FOLDER STATE GOAL` runs one engine, with Spark in
the same process, over the files in FOLDER, its checkpoints in STATE. GOAL is `keep`, which it says
when all of them are in a checkpoint, or `output`, which it says when it has results of what it had
not had before.
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

from anabranch.bench.stage import engines
from anabranch.bench.stage.input import Workload, stage_over
from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from anabranch.stream.batch import START_WATERMARK


def restart_seconds(engine: str, files: Path) -> float:
    """From the start of the process after one that had all files but the last and was killed, until
    the last one's results are out."""
    names, scratch = sorted(files.iterdir()), scratch_folder()
    folder, state = scratch / "input", scratch / "state"
    folder.mkdir()
    try:
        for file in names[:-1]:
            (folder / file.name).symlink_to(file)
        _run(engine, folder, state, "keep")
        (folder / names[-1].name).symlink_to(names[-1])
        begun = time.monotonic()
        _run(engine, folder, state, "output")
        return time.monotonic() - begun
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(engine: str, folder: Path, state: Path, goal: str) -> None:
    """Until it has come that far; then it is killed, with all that it has started."""
    order = [
        sys.executable,
        "-m",
        "anabranch.bench.stage.restart",
        engine,
        str(folder),
        str(state),
        goal,
    ]
    with subprocess.Popen(
        order, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout
        try:
            if not any(line.strip() == goal for line in process.stdout):
                raise TaskError(f"{engine} ended before its {goal}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def main(engine: str, folder: Path, state: Path, goal: str) -> None:
    from anabranch.config.cluster import SiteConfig
    from anabranch.coordinator.control.launch import OwnSpark

    spark = OwnSpark(SiteConfig(name="restart"), lambda text: None).session
    (_stage if engine == "stage" else _spark)(spark, folder, state, goal)
    print(goal, flush=True)
    time.sleep(3600)  # until it is killed


def _stage(spark: Any, folder: Path, state: Path, goal: str) -> None:
    run = engines.stage_started(spark, stage_over(folder), 0.5, state)
    if goal == "output":
        next(iter(run.windows(START_WATERMARK)))
        return
    while not run.call("due", after=START_WATERMARK, wait_s=1.0)["end"]:
        pass
    run.call("checkpoint")


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
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
