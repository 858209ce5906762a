"""APPROXIMATE on real sites: a worker is killed, its windows are estimated, all else is exact."""

from __future__ import annotations

import math
import signal
from collections import defaultdict
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from anabranch.face.events import differences
from anabranch.face.snapshot import snapshot
from bench.systems.cluster import FailingCluster
from bench.systems.postgres import Postgres

TPS, KEYS, SECONDS = 480, 12, 60
ROWS = TPS * SECONDS
START_US = 1_700_000_000_000_000
STEP_US = 1_000_000 / TPS
WIDTH_US, SLIDE_US = 600_000, 200_000
EPSILON = 0.5
SCRIPT = f"""
CREATE STREAM r (k BIGINT, x DOUBLE) FROM rate(tps = {TPS}, rows = {ROWS}, start = {START_US},
  k = 'value % {KEYS}',
  x = '20 + 5 * sin(value / 3000D) + value % {KEYS} + 0.2 * sin(value * 7919D)') AT source;
CREATE QUERY means AS SELECT k, AVG(x) AS x, window_end FROM r[600ms SLIDE 200ms] GROUP BY k
  APPROXIMATE WITHIN {EPSILON} CONFIDENCE 95%
  INTO postgres(url = '{{url}}', table = 'means');
"""


def reference() -> dict[tuple[int, int], float]:
    """(end, key) → mean, by a few lines of Python."""
    sums: dict[tuple[int, int], list[float]] = defaultdict(list)
    for n in range(ROWS):
        ts = START_US + n * 1_000_000 // TPS
        x = 20 + 5 * math.sin(n / 3000.0) + n % KEYS + 0.2 * math.sin(n * 7919.0)
        first = ts // SLIDE_US * SLIDE_US + SLIDE_US
        for end in range(first, first + WIDTH_US, SLIDE_US):
            sums[end, n % KEYS].append(x)
    return {place: sum(xs) / len(xs) for place, xs in sums.items()}


@pytest.fixture(scope="module")
def cluster(spark: SparkSession) -> Iterator[FailingCluster]:
    with FailingCluster(["source"], ["one", "two"], print, pause_s=600, spark=spark) as running:
        yield running


PAIRED_S = 45
PAIRED = f"""
CREATE STREAM p (k BIGINT, x DOUBLE) FROM rate(tps = {TPS}, rows = {TPS * PAIRED_S},
  start = {START_US}, k = 'value % {KEYS}', x = '{{signal}}') AT source;
CREATE QUERY pairs AS SELECT k, AVG(x) AS x, window_end FROM p[300ms SLIDE 100ms] GROUP BY k
  APPROXIMATE WITHIN 1.2 CONFIDENCE 95%
  INTO postgres(url = '{{url}}', table = 'dealt_pairs');
"""


def pairs_at_one_worker(spark: SparkSession) -> list[int]:
    """By key, its pair: two keys of a pair are dealt to the same worker by their hash."""
    keys = spark.range(KEYS).selectExpr("id", "pmod(hash(CAST(id AS STRING)), 2) AS worker")
    order = [row["id"] for row in sorted(keys.collect(), key=lambda row: row["worker"])]
    return [order.index(key) // 2 for key in range(KEYS)]


def paired(n: int, pair: int) -> float:
    return math.sin(n / (90.0 + 13 * pair)) + 0.8 * math.sin(n / (41.0 + 7 * pair))


@pytest.mark.soak
@pytest.mark.spark
def test_keys_are_dealt_out_anew_while_it_runs(
    cluster: FailingCluster, postgres: Postgres, spark: SparkSession
) -> None:
    """So that those who know of each other are apart; no window is lost, doubled or estimated."""
    pairs = pairs_at_one_worker(spark)
    pair = f"element_at(array({', '.join(map(str, pairs))}), CAST(value % {KEYS} AS INT) + 1)"
    signal = f"sin(value / (90D + 13 * {pair})) + 0.8D * sin(value / (41D + 7 * {pair}))"
    cluster.execute(PAIRED.format(url=postgres.url, signal=signal))
    expected: dict[tuple[int, int], list[float]] = defaultdict(list)
    for n in range(TPS * PAIRED_S):
        first = (START_US + n * 1_000_000 // TPS) // 100_000 * 100_000 + 100_000
        for end in range(first, first + 300_000, 100_000):
            expected[end, n % KEYS].append(paired(n, pairs[n % KEYS]))

    def dealt(status):
        found = status.approximations.get("pairs")
        names = [one.query for one in found.workers] if found else []
        return names == ["pairs/1.2", "pairs/2.2"] and found.workers[0].estimable

    cluster.wait_for(dealt, "keys are dealt out anew", 90)

    def complete(status):
        return postgres.execute("SELECT count(*) FROM dealt_pairs")[0][0] >= len(expected)

    cluster.wait_for(complete, "all results", 90)
    rows = postgres.execute("SELECT _ts, k, x, estimated FROM dealt_pairs")
    assert not any(estimated for *_, estimated in rows)
    assert len(rows) == len(expected)
    found = {(ts, k): x for ts, k, x, _ in rows}
    means = {place: sum(xs) / len(xs) for place, xs in expected.items()}
    assert found == pytest.approx(means, abs=1e-9)
    assert cluster.status().workers["pairs"] == ("pairs/1.2", "pairs/2.2")
    cluster.execute("DROP QUERY pairs; DROP STREAM p;")


@pytest.mark.slow
@pytest.mark.spark
def test_a_killed_workers_windows_are_estimated(
    cluster: FailingCluster, postgres: Postgres
) -> None:
    cluster.execute(SCRIPT.format(url=postgres.url))

    def learnt(status):
        found = status.approximations.get("means")
        return found and found.model and all(one.estimable for one in found.workers)

    cluster.wait_for(learnt, "all workers are estimable", 40)
    before = snapshot(cluster.status(), 1.0)
    (query,) = before.queries
    assert (query.name, query.state) == ("means", "running")
    assert query.estimates
    assert [one.query for one in query.estimates.workers] == ["means/1", "means/2"]
    assert query.site == ", ".join(one.site for one in query.estimates.workers)
    assert all(one.bound for one in query.estimates.workers)
    cluster.signal("two", signal.SIGKILL)

    def recovered(status):
        found = status.approximations["means"]
        return found.estimated and not found.recovering

    cluster.wait_for(recovered, "estimated", 30)
    told = differences(before, snapshot(cluster.status(), 2.0))
    assert "means" in [one.query for one in told if one.kind == "estimate"]
    expected = reference()

    def complete(status):
        rows = postgres.execute("SELECT count(*) FROM means")[0][0]
        return rows >= len(expected)

    cluster.wait_for(complete, "all results", 90)
    rows = postgres.execute("SELECT _ts, k, x, estimated, lower, upper, _stream FROM means")
    places = [(ts, k) for ts, k, *_ in rows]
    assert len(places) == len(set(places))
    assert set(places) == set(expected)
    exact = {(ts, k): x for ts, k, x, estimated, *_ in rows if not estimated}
    assert exact == pytest.approx({place: expected[place] for place in exact}, abs=1e-9)
    estimates = [row for row in rows if row[3]]
    ends = {ts for ts, *_ in estimates}
    lost = {k for _, k, *_, stream in rows if stream == "means/2"}
    assert {k for _, k, *_ in estimates} == lost
    assert 3 <= len(ends) <= 40
    assert max(ends) - min(ends) == (len(ends) - 1) * SLIDE_US
    wrong = [abs(x - expected[ts, k]) > EPSILON for ts, k, x, *_ in estimates]
    assert sum(wrong) <= 0.05 * len(wrong)
    assert all(lower < x < upper for _, _, x, _, lower, upper, _ in estimates)
