"""The coordinator's watch over an approximate query, against a real table; sites are played."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from anabranch.coordinator.approximate.learning import Learning
from anabranch.coordinator.approximate.models import FileStore, Models
from anabranch.coordinator.approximate.watch import Approximations
from anabranch.coordinator.approximate.workers import Workers
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import ApproximationReport
from anabranch.coordinator.base.secrets import Secrets
from anabranch.errors import SiteError
from anabranch.plan.approximate import (
    dealt_out,
    replaced,
    with_workers,
    worker_queries,
    worker_query,
)
from anabranch.plan.catalog import ApproximateDef
from bench.systems.postgres import Postgres
from tests.coordinator.test_approximate import KEYS, SLIDE, made, value

COLUMNS = (
    "k bigint, x double precision, window_end timestamptz, estimated boolean, lower double"
    " precision, upper double precision, confidence double precision, _stream text, _pos bigint,"
    " _ts bigint, PRIMARY KEY (_stream, _pos)"
)
WAIT_S = 60.0


class PlayedWorkers(Workers):
    """Sites are dead if we say so; a replacement begins at `since`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.dead: set[int] = set()
        self.since: int | None = None
        self.all_out = False
        self.standbys: dict[int, bool] = {}

    def is_dead(self, made: ApproximateDef, number: int) -> bool:
        return number in self.dead

    def has_standby(self, made: ApproximateDef, number: int) -> bool:
        return self.standbys.get(number, False)

    def standby(self, made: ApproximateDef, number: int) -> str | None:
        return "three"

    def in_hand(self, made: ApproximateDef, number: int) -> bool:
        return False

    def protect(self, made: ApproximateDef, number: int, wanted: bool) -> None:
        self.standbys[number] = wanted

    def deal(
        self,
        made: ApproximateDef,
        assignment: tuple[tuple[str, ...], ...],
        changed: Sequence[int],
        windows: int,
    ) -> None:
        assert self.since is not None
        then = dealt_out(self.current(made), assignment, changed, self.since, windows)
        self._catalog.change(add=[worker_query(then, n) for n in changed], drop=[])
        self._catalog.replace([then])

    def let_go(self, made: ApproximateDef) -> None:
        if self.all_out:
            then = self.current(made).model_copy(update={"leaving": ()})
            self._catalog.replace([then])

    def replace(self, made: ApproximateDef, number: int) -> None:
        if self.since is None:
            raise SiteError("no site is left")
        self._catalog.replace([replaced(self.current(made), number, "one", self.since)])
        self.dead.discard(number)


def no_spark(made: ApproximateDef, lesson: object) -> None:
    raise SiteError("no site is up that could learn")


def paired(end: int, key: int) -> float:
    """Keys 0 and 2 know of each other, 1 and 3, 4 and 6, 5 and 7; nobody else does."""
    pair = key % 2 + 2 * (key // 4)
    noise = math.sin(end * (key + 1.7)) * 0.05
    return math.sin(end / (130 + 17 * pair)) + 0.8 * math.sin(end / (71 - 5 * pair)) + noise


def three_workers(url: str) -> ApproximateDef:
    """Of which two may die at once."""
    one = made(url)
    asked = one.asked.model_copy(update={"sites": ("one", "two", "three"), "failures": 2})
    return with_workers(one.model_copy(update={"asked": asked}))


class Query:
    """An approximate query whose results we write."""

    def __init__(self, postgres: Postgres, folder: Path, workers: int = 2) -> None:
        self.made = three_workers(postgres.url) if workers == 3 else made(postgres.url)
        self.catalog = Catalog(folder / "catalog.db")
        self.catalog.change(add=[self.made, *worker_queries(self.made)], drop=[])
        self.workers = PlayedWorkers(self.catalog)
        self._folder, self._postgres = folder, postgres
        self.value: Callable[[int, int], float] = value
        self.watch = self._watching()

    def _watching(self) -> Approximations:
        models = Models(FileStore(self._folder / "models.duckdb"))
        learning = Learning(no_spark)  # type: ignore[arg-type]
        return Approximations(
            self.catalog, self.workers, learning, models, lambda line: None, 0.02, Secrets()
        )

    def restart_coordinator(self) -> None:
        self.watch.close()
        self.watch = self._watching()

    def deliver(self, ends: range, streams: dict[int, str]) -> None:
        """Results of these workers, all at once."""
        count = len(self.made.workers)
        self.deliver_keys(
            ends, {stream: range(worker, KEYS, count) for worker, stream in streams.items()}
        )

    def deliver_keys(self, ends: range, streams: Mapping[str, Iterable[int]]) -> None:
        rows = []
        for stream, keys in streams.items():
            first = self._postgres.execute(
                "SELECT coalesce(max(_pos), 0) + 1 FROM results WHERE _stream = %s", stream
            )[0][0]
            places = [(end, key) for end in ends for key in keys]
            rows += [
                f"({key}, {self.value(end, key)!r}, false, '{stream}', {number}, {end})"
                for number, (end, key) in enumerate(places, first)
            ]
        self._postgres.execute(
            "INSERT INTO results (k, x, estimated, _stream, _pos, _ts)"
            f" VALUES {', '.join(rows)} ON CONFLICT DO NOTHING"
        )

    def estimates(self) -> dict[tuple[int, int], float]:
        rows = self._postgres.execute("SELECT _ts, k, x FROM results WHERE estimated")
        return {(end, key): x for end, key, x in rows}

    def rows(self) -> list[tuple[int, int]]:
        """Windows and keys in the table."""
        return [tuple(row) for row in self._postgres.execute("SELECT _ts, k FROM results")]  # type: ignore[misc]

    def wait(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline, (what, self.watch.report())
            time.sleep(0.02)

    def report(self) -> ApproximationReport | None:
        return self.watch.report().get("q")

    def has_model(self) -> bool:
        found = self.report()
        return bool(found and found.model)

    def recovered(self) -> bool:
        found = self.report()
        return bool(found and not found.recovering)

    def all_estimable(self) -> bool:
        found = self.report()
        return bool(found and all(one.estimable for one in found.workers))


@pytest.fixture
def query(postgres: Postgres, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Query]:
    """With as many workers as the test says."""
    postgres.execute(f"CREATE TABLE results ({COLUMNS})")
    found = Query(postgres, tmp_path, getattr(request, "param", 2))
    yield found
    found.watch.close()
    found.catalog.close()
    postgres.execute("DROP TABLE results")


def test_estimation_goes_on_after_a_restart_of_the_coordinator(query: Query) -> None:
    """Worker 2 dies behind 6 000. The coordinator dies when it has estimated two of the windows,
    and nobody has replaced the worker yet."""
    past = range(100, 6100, SLIDE)
    query.deliver(past, {0: "q/1", 1: "q/2"})
    query.wait(query.has_model, "a model")
    query.workers.dead = {1}
    query.deliver(range(6100, 6300, SLIDE), {0: "q/1"})
    odd = (1, 3, 5, 7)
    query.wait(lambda: len(query.estimates()) == 8, "two windows")
    query.restart_coordinator()
    query.deliver(range(6300, 6500, SLIDE), {0: "q/1"})
    query.wait(lambda: len(query.estimates()) == 16, "two more")
    query.workers.since = 6600
    query.wait(lambda: not query.workers.dead, "a replacement")
    query.restart_coordinator()
    query.deliver(range(6500, 7000, SLIDE), {0: "q/1"})
    query.deliver(range(6600, 7000, SLIDE), {1: "q/2.2"})
    query.wait(query.recovered, "recovered")
    found = query.estimates()
    assert found.keys() == {(end, key) for end in range(6100, 6600, SLIDE) for key in odd}
    for (end, key), x in found.items():
        assert math.isclose(x, value(end, key), abs_tol=0.5)
    assert query.report().model == 1  # type: ignore[union-attr]


def test_without_spark_it_is_learnt_here_and_said(query: Query) -> None:
    past = range(100, 6100, SLIDE)
    query.deliver(past, {0: "q/1", 1: "q/2"})
    query.wait(query.has_model, "a model")
    report = query.report()
    assert report
    assert "no site is up that could learn" in report.problem
    assert report.learnt_from >= 48


@pytest.mark.parametrize("query", [3], indirect=True)
def test_two_workers_die_at_once_and_the_coordinator_behind_them(query: Query) -> None:
    """FAILURES 2: what both lost is estimated from the third alone, and all is there once."""
    past = range(100, 6100, SLIDE)
    query.deliver(past, {0: "q/1", 1: "q/2", 2: "q/3"})
    query.wait(query.all_estimable, "all estimable")
    query.workers.dead = {1, 2}
    query.deliver(range(6100, 6400, SLIDE), {0: "q/1"})
    lost = [key for key in range(KEYS) if key % 3]
    query.wait(lambda: len(query.estimates()) == 3 * len(lost), "three windows")
    query.restart_coordinator()
    query.workers.since = 6600
    query.wait(lambda: not query.workers.dead, "replacements")
    query.deliver(range(6400, 7000, SLIDE), {0: "q/1"})
    query.deliver(range(6600, 7000, SLIDE), {1: "q/2.2", 2: "q/3.2"})
    query.wait(query.recovered, "recovered")
    found = query.estimates()
    assert found.keys() == {(end, key) for end in range(6100, 6600, SLIDE) for key in lost}
    for (end, key), x in found.items():
        assert math.isclose(x, value(end, key), abs_tol=0.5)
    rows = query.rows()
    assert len(rows) == len(set(rows))
    assert set(rows) == {(end, key) for end in range(100, 7000, SLIDE) for key in range(KEYS)}


def test_keys_are_dealt_out_anew_where_more_workers_can_be_estimated_then(query: Query) -> None:
    """By their hash, each pair of keys that know of each other is at one worker: none can be
    estimated. The coordinator dies while keys are handed over."""
    query.value = paired
    query.workers.since = 30_000
    query.deliver(range(100, 30_000, SLIDE), {0: "q/1", 1: "q/2"})
    query.wait(lambda: bool(query.catalog.definitions()["q"].leaving), "dealing")  # type: ignore[union-attr]
    query.wait(lambda: "dealt" in str(query.report()), "said")
    query.restart_coordinator()
    made = query.catalog.definitions()["q"]
    assert isinstance(made, ApproximateDef)
    new = {f"q/{n}.2": [int(key) for key in keys] for n, keys in enumerate(made.assignment, 1)}
    for pair in ((0, 2), (1, 3), (4, 6), (5, 7)):
        assert len([keys for keys in new.values() if set(pair) & set(keys)]) == 2
    query.deliver_keys(range(30_000, 33_000, SLIDE), new)
    query.workers.all_out = True
    query.wait(query.all_estimable, "all estimable")
    made = query.catalog.definitions()["q"]
    assert isinstance(made, ApproximateDef)
    assert (made.leaving, made.dealt > 0) == ((), True)
    query.workers.dead, query.workers.since = {1}, 33_600
    query.deliver_keys(range(33_000, 33_300, SLIDE), {"q/1.2": new["q/1.2"]})
    query.wait(lambda: len(query.estimates()) == 3 * 4, "three windows")
    for (end, key), x in query.estimates().items():
        assert key in new["q/2.2"]
        assert math.isclose(x, paired(end, key), abs_tol=0.5)
