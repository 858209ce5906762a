"""What has been learnt about approximate queries, version by version, in a DuckDB file beside
the catalog or in a PostgreSQL that outlives it.
"""

from __future__ import annotations

import io
import json
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import psycopg

from anabranch.approx.assign import METHODS
from anabranch.approx.assign.problem import AssignmentProblem, Workers, even
from anabranch.approx.calibration import Calibration
from anabranch.approx.gaussian import lost_covariance
from anabranch.approx.model import Model
from anabranch.approx.plan import EstimationPlan, Promise
from anabranch.connectors.postgres.client import Database, reason
from anabranch.errors import SinkError
from anabranch.plan.approximate import key_text
from anabranch.plan.catalog import Approximate

COLUMNS = ("run", "windows", "keys", "workers", "promise", "arrays")
_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    query TEXT, version INTEGER, run TEXT, windows INTEGER, keys TEXT, workers TEXT,
    promise TEXT, arrays {bytes}, PRIMARY KEY (query, version))"""
_INSERT = (
    "INSERT INTO {table} SELECT {at}, coalesce(max(version), 0) + 1, {at}, {at}, {at}, {at}, {at},"
    " {at} FROM {table} WHERE query = {at} RETURNING version"
)
_NEWEST = (
    "SELECT version, run, windows, keys, workers, promise, arrays FROM {table} WHERE query = {at}"
    " ORDER BY version DESC LIMIT 1"
)
Row = tuple[Any, ...]


class ModelStore(Protocol):
    """Rows of `COLUMNS` by query and version."""

    def save(self, query: str, row: Row) -> int:
        """Saves it. Returns the version under which it is kept."""

    def newest(self, query: str) -> Row | None:
        """Its version, and the row."""

    def close(self) -> None: ...


class FileStore:
    """Keeps models in a file, which is made at the first save."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: duckdb.DuckDBPyConnection | None = None

    def save(self, query: str, row: Row) -> int:
        statement = _INSERT.format(table="model", at="?")
        version = self._open().execute(statement, [query, *row, query]).fetchone()
        assert version
        return int(version[0])

    def newest(self, query: str) -> Row | None:
        if not self._path.exists():
            return None
        return self._open().execute(_NEWEST.format(table="model", at="?"), [query]).fetchone()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._db is None:
            self._db = duckdb.connect(str(self._path))
            self._db.execute(_TABLE.format(table="model", bytes="BLOB"))
        return self._db


class PostgresStore:
    """Keeps models in PostgreSQL, with a new connection each time: models are seldom asked for."""

    _NAME = "anabranch_model"

    def __init__(self, url: str) -> None:
        self._database = Database(url, "models", trusted=True)

    def save(self, query: str, row: Row) -> int:
        version = self._run(_INSERT, (query, *row, query))
        assert version
        return int(version[0])

    def newest(self, query: str) -> Row | None:
        return self._run(_NEWEST, (query,))

    def close(self) -> None:
        """Does nothing: no connection is open."""

    def _run(self, statement: str, values: Row) -> Row | None:
        try:
            with closing(self._database.connect(autocommit=True)) as connection:
                # One after the other: two that create the table at once would fail.
                connection.execute("SELECT pg_advisory_lock(7200122)")
                connection.execute(_TABLE.format(table=self._NAME, bytes="BYTEA"))
                text = statement.format(table=self._NAME, at="%s")
                return connection.execute(text, values).fetchone()
        except psycopg.Error as error:
            place = self._database.place
            raise SinkError(reason(error), place=f"models in {place}") from error


_ARRAYS = ("mean", "sample", "spread", "jump")
_BOUNDS = ("memory", "by_lag", "bound")


@dataclass(frozen=True)
class LearntModel:
    """`windows` is the number of windows it was learnt from; `keys` names its columns."""

    version: int
    run: str
    windows: int
    keys: list[tuple[Any, ...]]
    plan: EstimationPlan

    def problem(self, promise: Approximate) -> AssignmentProblem:
        """The problem of dealing the keys out for this promise. Bounds are proportional to the
        deviation that they were found for.
        """
        plan, workers = self.plan, len(promise.sites)
        sigmas = np.zeros(len(self.keys))
        for keys in plan.workers:
            if keys:
                sigmas[keys] = np.sqrt(np.diag(lost_covariance(plan.model.precision, keys)))
        bounds = np.where(np.isfinite(plan.bounds), plan.bounds, 1e30)
        return AssignmentProblem(
            plan.model.precision,
            (sigmas * promise.epsilon / np.maximum(bounds, 1e-12)) ** 2,
            plan.promise.confidence,
            even(len(self.keys), workers),
            promise.failures,
            plan.workers if len(plan.workers) == workers else None,
        )

    def better(self, promise: Approximate) -> Workers | None:
        """Keys by worker, if more workers could be estimated with them; None if not."""
        if len(self.keys) < len(promise.sites):
            return None
        problem = self.problem(promise)
        assignment = METHODS["swaps"](problem)
        gain = sum(problem.estimable(assignment)) - sum(problem.estimable(self.plan.workers))
        return assignment if gain > 0 else None

    def as_text(self, workers: Workers) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(key_text(self.keys[key]) for key in keys) for keys in workers)

    def fits(self, assignment: tuple[tuple[str, ...], ...]) -> bool:
        """Whether every key is still where it was when this was learnt."""
        homes = {text: worker for worker, keys in enumerate(assignment) for text in keys}
        return all(
            homes.get(text, worker) == worker
            for worker, keys in enumerate(self.as_text(self.plan.workers))
            for text in keys
        )


class Models:
    """The versions of each query's model, including those of earlier creations under the same
    name.
    """

    def __init__(self, store: ModelStore) -> None:
        self._lock = threading.Lock()
        self._store = store

    def save(self, query: str, learnt: LearntModel) -> int:
        """Saves it. Returns the version under which it is kept."""
        plan = learnt.plan
        arrays = {name: getattr(plan.model, name) for name in _ARRAYS}
        arrays |= {name: getattr(plan.calibration, name) for name in _BOUNDS}
        arrays |= {"bounds": plan.bounds, "scalars": np.array([plan.model.shrinkage, plan.weight])}
        body = io.BytesIO()
        np.savez_compressed(body, **arrays)
        promise = plan.promise
        row = (
            learnt.run,
            learnt.windows,
            json.dumps(learnt.keys),
            json.dumps(plan.workers),
            json.dumps([promise.epsilon, promise.confidence, promise.lags, promise.failures]),
            body.getvalue(),
        )
        with self._lock:
            return self._store.save(query, row)

    def newest(self, query: str) -> LearntModel | None:
        with self._lock:
            row = self._store.newest(query)
        if row is None:
            return None
        version, run, windows, keys, workers, promise, body = row
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            shrinkage, weight = map(float, arrays["scalars"])
            model = Model(
                arrays["mean"], arrays["sample"], shrinkage, arrays["spread"], arrays["jump"]
            )
            calibration = Calibration(*(arrays[name] for name in _BOUNDS))
            bounds = arrays["bounds"]
        plan = EstimationPlan(
            Promise(*json.loads(promise)), model, weight, json.loads(workers), calibration, bounds
        )
        return LearntModel(version, run, windows, [tuple(key) for key in json.loads(keys)], plan)

    def assignment(self, query: str, promise: Approximate) -> tuple[tuple[str, ...], ...]:
        """Keys as text, by worker, so that as many workers as possible can be estimated; empty if
        nothing has been learnt. The earlier assignment is kept where it is good enough.
        """
        newest = self.newest(query)
        if newest is None or len(newest.keys) < len(promise.sites):
            return ()
        return newest.as_text(METHODS["swaps"](newest.problem(promise)))

    def close(self) -> None:
        with self._lock:
            self._store.close()
