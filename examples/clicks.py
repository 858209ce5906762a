"""Click counts under skew: two thirds of all clicks are on one page, and no task waits for it.

    python examples/clicks.py

A million clicks are made up and counted per page and minute by a stage: Spark's tasks put partial
counts into a state that they share, so nothing is shuffled by page.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch import Cluster

CLICKS, MINUTES = 1_000_000, 10


def make_up(folder: Path) -> None:
    """Clicks in the order of time; pages by Zipf's law."""
    chance = np.random.default_rng(1)
    pages = np.minimum(chance.zipf(2.0, CLICKS), 100_000)
    times = np.arange(CLICKS) * (MINUTES * 60_000_000 // CLICKS)
    pq.write_table(pa.table({"page": pages, "ts": times}), folder / "clicks.parquet")


def count(folder: Path, cluster: Cluster) -> list[dict]:
    """Pages with more than 1,000 clicks in a minute, minute by minute."""
    make_up(folder)
    cluster.sql(f"""
        CREATE STREAM clicks (page BIGINT) TIMESTAMP ts FROM file(path = '{folder}/clicks.parquet');
        CREATE QUERY visits AS
          SELECT page, count(*) AS n, window_end FROM clicks[1m] GROUP BY page
          HAVING count(*) > 1000
          STAGE INTO jsonl(path = '{folder}/visits.jsonl');
    """)
    cluster.wait("2m")
    return [json.loads(line) for line in (folder / "visits.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, Cluster.local("centre") as running:
        for row in count(Path(scratch), running):
            print(row["window_end"], f"page {row['page']}:", f"{row['n']:,}")
