"""Sum by key with Flink's SQL, run by a Python that has apache-flink and nothing of ours.

`python flink_job.py PARALLELISM FORMAT JARS FIRST FOLDER`: reads a folder's files ('csv' or
'parquet') as a stream, gives results to nobody, and prints a line of JSON with the seconds from
when the job ran until it ended. A job over FIRST comes before, since a first one pays for compiled
code. JARS, with semicolons between them, are loaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

SETTINGS = {
    "execution.checkpointing.interval": "1 s",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "100000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "state.backend.type": "hashmap",
}
LOOK_S = 0.005


def main(
    parallelism: str, form: str, jars: str, folders: list[str], checkpoints_folder: str
) -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = SETTINGS | {"parallelism.default": parallelism}
    if jars:
        settings["pipeline.jars"] = jars
    # A header is a line whose fields are no numbers.
    more = ", 'csv.ignore-parse-errors' = 'true'" if form == "csv" else ""
    for name, value in settings.items():
        environment.get_config().set(name, value)
    # Without a folder checkpoints are in messages, which large ones do not fit: they would fail.
    checkpoints = f"file://{checkpoints_folder}"
    environment.get_config().set("execution.checkpointing.dir", checkpoints)
    environment.execute_sql(
        "CREATE TABLE nobody (`key` BIGINT, s BIGINT) WITH ('connector' = 'blackhole')"
    )
    for number, folder in enumerate(folders):
        environment.execute_sql(
            f"CREATE TABLE r{number} (ts BIGINT, `key` BIGINT, `value` BIGINT) WITH"
            f" ('connector' = 'filesystem', 'path' = '{folder}', 'format' = '{form}'{more})"
        )
        seconds = took(environment, f"r{number}")
    print(json.dumps({"seconds": seconds}))


def took(environment: Any, table: str) -> float:
    """From when the job runs: what submitting and scheduling it takes does not count."""
    job = environment.execute_sql(
        f"INSERT INTO nobody SELECT `key`, SUM(`value`) FROM {table} WHERE `key` IS NOT NULL"
        " GROUP BY `key`"
    )
    client = job.get_job_client()
    while client.get_job_status().result().name in ("INITIALIZING", "CREATED"):
        time.sleep(LOOK_S)
    begun = time.monotonic()
    job.wait()
    return time.monotonic() - begun


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as kept:
        main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:], kept)
