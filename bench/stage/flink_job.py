"""Sum by key with Flink's SQL, run by a Python that has apache-flink and nothing of ours.

`python flink_job.py FOLDER`: reads the folder's CSV files as a stream, gives results to nobody, and
prints a line of JSON with the seconds that the job took. It is run twice, since a first run pays
for compiled code; the second counts, with the start of Flink's local cluster in it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time

SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "1 s",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "100000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "state.backend.type": "hashmap",
}


def main(folder: str, checkpoints_folder: str) -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        environment.get_config().set(name, value)
    # Without a folder checkpoints are in messages, which large ones do not fit: they would fail.
    checkpoints = f"file://{checkpoints_folder}"
    environment.get_config().set("execution.checkpointing.dir", checkpoints)
    # A header is a line whose fields are no numbers.
    environment.execute_sql(
        "CREATE TABLE r (ts BIGINT, `key` BIGINT, `value` BIGINT) WITH ('connector' = 'filesystem',"
        f" 'path' = '{folder}', 'format' = 'csv', 'csv.ignore-parse-errors' = 'true')"
    )
    environment.execute_sql(
        "CREATE TABLE nobody (`key` BIGINT, s BIGINT) WITH ('connector' = 'blackhole')"
    )
    for _ in range(2):
        begun = time.monotonic()
        environment.execute_sql(
            "INSERT INTO nobody SELECT `key`, SUM(`value`) FROM r WHERE `key` IS NOT NULL"
            " GROUP BY `key`"
        ).wait()
        seconds = time.monotonic() - begun
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as kept:
        main(sys.argv[1], kept)
