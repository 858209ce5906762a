"""Clicks, most of them on one page, counted in a state that Spark's tasks share."""

from __future__ import annotations

import json
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.demo.scenes.host import Scene, SceneHost, SceneOutcome

FILES, PAGES = 4, 100_000
SKEW = 2.0
FOLDER, FILE = "clicks", "visits.jsonl"
SCRIPT = f"""
CREATE STREAM clicks (page BIGINT) TIMESTAMP ts FROM file(path = '{FOLDER}') AT desk;
CREATE QUERY visits AS
  SELECT page, count(*) AS n, window_end FROM clicks[10m] GROUP BY page HAVING count(*) >= 100
  STAGE INTO jsonl(path = '{FILE}') AT desk;
"""


def write_clicks(folder: Path, clicks: int) -> None:
    """Writes an hour of clicks, in the order of time; pages follow Zipf's law."""
    folder.mkdir()
    draw = np.random.default_rng(1)
    part = clicks // FILES
    for number in range(FILES):
        pages = np.minimum(draw.zipf(SKEW, part), PAGES)
        times = (np.arange(part) + number * part) * (3_600_000_000 // clicks)
        table = pa.table({"page": pages, "ts": times})
        pq.write_table(table, folder / f"{number}.parquet")


def expected(folder: Path) -> list[tuple[int, int, int]]:
    """(window's end in µs, page, clicks), computed by DuckDB."""
    width = 600_000_000
    with duckdb.connect() as database:
        return database.execute(
            f"SELECT (ts // {width} + 1) * {width} AS e, page, count(*) AS n"
            f" FROM '{folder}/*.parquet' GROUP BY ALL HAVING n >= 100 ORDER BY ALL"
        ).fetchall()


class StageScene(Scene):
    title = "A count under skew, in shared state instead of a shuffle"

    def __init__(self, clicks: int = 4_000_000) -> None:
        self._clicks = clicks

    def play(self, host: SceneHost) -> SceneOutcome:
        host.progress(f"Making up {self._clicks / 1e6:g} million clicks …")
        write_clicks(host.folder / FOLDER, self._clicks)
        wanted = expected(host.folder / FOLDER)
        begun = time.monotonic()
        host.execute(SCRIPT)
        host.wait(_ended, "Counting them by page, most of them on one", 120)
        took = time.monotonic() - begun
        rows = [json.loads(line) for line in (host.folder / FILE).read_text().splitlines()]
        host.drop_all()
        counts = sorted((row["_ts"], row["page"], row["n"]) for row in rows)
        right = counts == wanted
        share = sum(n for _, page, n in wanted if page == 1) / self._clicks
        verdict = "as DuckDB counts them" if right else "NOT as DuckDB counts them"
        return SceneOutcome(
            f"{self._clicks / 1e6:g} million clicks, {share:.0%} on one page, were counted in"
            f" {took:.1f} s without a shuffle: {len(rows):,} counts, {verdict}.",
            right,
        )


def _ended(status: SystemStatus) -> bool:
    return status.states["visits"].state == "done"
