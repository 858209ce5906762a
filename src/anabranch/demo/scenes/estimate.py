"""A worker dies; its missing results are estimated from the others, with a bound."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import psycopg

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.demo.apartment import CENTRE, SPARE
from anabranch.demo.database import DemoDatabase
from anabranch.demo.scenes.host import Scene, SceneHost, SceneOutcome
from anabranch.errors import SetupError

TPS, KEYS, SECONDS = 240, 12, 45
ROWS = TPS * SECONDS
START_US = 1_700_000_000_000_000
WIDTH_US, SLIDE_US = 600_000, 200_000
WITHIN = 0.5
SCRIPT = """
CREATE STREAM sensors (k BIGINT, x DOUBLE) FROM rate(tps = {tps}, rows = {rows}, start = {start},
  k = 'value % {keys}',
  x = '20 + 5 * sin(value / 1500D) + value % {keys} + 0.2 * sin(value * 7919D)') AT room1;
CREATE QUERY means AS SELECT k, AVG(x) AS x, window_end FROM sensors[600ms SLIDE 200ms] GROUP BY k
  APPROXIMATE WITHIN {within} CONFIDENCE 95% ON {workers}
  INTO postgres(url = '{url}', table = 'means');
"""


def value(n: int) -> float:
    return 20 + 5 * math.sin(n / 1500.0) + n % KEYS + 0.2 * math.sin(n * 7919.0)


def expected() -> dict[tuple[int, int], float]:
    """(window's end, key) → mean, computed by a few lines of Python."""
    sums: dict[tuple[int, int], list[float]] = defaultdict(list)
    for n in range(ROWS):
        ts = START_US + n * 1_000_000 // TPS
        first = ts // SLIDE_US * SLIDE_US + SLIDE_US
        for end in range(first, first + WIDTH_US, SLIDE_US):
            sums[end, n % KEYS].append(value(n))
    return {place: sum(xs) / len(xs) for place, xs in sums.items()}


class EstimateScene(Scene):
    title = "A lost worker's windows are estimated, with a bound"

    def play(self, host: SceneHost) -> SceneOutcome:
        try:
            database = DemoDatabase()
        except SetupError as error:
            return SceneOutcome(f"Skipped: {error.line()}", None)
        with database:
            host.wait_until_up()
            host.execute(
                SCRIPT.format(
                    tps=TPS,
                    rows=ROWS,
                    start=START_US,
                    keys=KEYS,
                    within=WITHIN,
                    workers=f"{CENTRE}, {SPARE}",
                    url=database.url,
                )
            )
            host.wait(_learnt, "Learning how the sensors go together", 60)
            host.kill(SPARE)
            host.wait(_recovered, f"{SPARE} was killed; its windows are being estimated", 60)
            rows = _rows(database.url)
            host.drop_all()
        return judged(rows)


def _learnt(status: SystemStatus) -> bool:
    report = status.approximations.get("means")
    if report is None or not report.model:
        return False
    return all(one.estimable for one in report.workers)


def _recovered(status: SystemStatus) -> bool:
    report = status.approximations["means"]
    return bool(report.estimated) and not report.recovering


def _rows(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT _ts, k, x, estimated, lower, upper FROM means").fetchall()


def judged(rows: list[tuple[Any, ...]]) -> SceneOutcome:
    true = expected()
    exact = [abs(x - true[ts, k]) for ts, k, x, guess, *_ in rows if not guess]
    guesses = [
        (abs(x - true[ts, k]), (upper - lower) / 2)
        for ts, k, x, guess, lower, upper in rows
        if guess
    ]
    within = sum(off <= WITHIN for off, _ in guesses)
    bound = max((half for _, half in guesses), default=0.0)
    worst = max((off for off, _ in guesses), default=0.0)
    return SceneOutcome(
        f"{len(guesses)} means of a dead worker were estimated within ± {bound:.2f} (asked: ± "
        f"{WITHIN}, with confidence 95 %): the worst is off by {worst:.2f}; all {len(exact):,}"
        " others are exact.",
        bool(guesses) and within >= 0.95 * len(guesses) and max(exact) < 1e-9,
    )
