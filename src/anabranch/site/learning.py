"""A Spark job that learns how an approximate query's keys depend on one another, from all that its
table holds. Each task reads the windows of a piece of time, and keeps them while the model goes
through them several times.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TypeVar

import numpy as np
import psycopg
from psycopg import sql
from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.approx.gaussian import Floats
from anabranch.approx.model import WindowBlock, learn_from
from anabranch.connectors.postgres.client import database_of, reason, table_name
from anabranch.errors import SiteError
from anabranch.link.messages import LearnModel, ModelArrays
from anabranch.spark.jobs import SparkJobs

V = TypeVar("V")
BLOCK = 500
"""Windows a task, at least; more if there are very many."""
BLOCKS = 200


class OnSpark:
    """Blocks of a history that Spark keeps."""

    def __init__(self, blocks: RDD[WindowBlock]) -> None:
        self._blocks = blocks.cache()

    def map(self, change: Callable[[WindowBlock], WindowBlock]) -> OnSpark:
        return OnSpark(self._blocks.map(change))

    def fold(self, look: Callable[[WindowBlock], V], merge: Callable[[V, V], V]) -> V:
        return self._blocks.map(look).treeReduce(merge)


def learn_model(spark: SparkSession, request: LearnModel) -> ModelArrays:
    """The model's arrays, as text, and the number of windows."""
    try:
        first = _first(request)
        SparkJobs(spark, "learning", per_instance=False).name(f"learning from {request.table}")
        pieces = _pieces(first, request.newest, request.slide)
        context = spark.sparkContext
        blocks = context.parallelize(pieces, len(pieces)).map(partial(_read, request))
        model = learn_from(OnSpark(blocks))
    except psycopg.Error as error:
        raise SiteError(f"table {request.table}: {reason(error)}") from error
    except (PySparkException, Py4JError) as error:
        text = str(error).strip().splitlines()[0]
        raise SiteError(f"the job that learns from {request.table} failed: {text}") from error
    body = io.BytesIO()
    np.savez(body, mean=model.mean, sample=model.sample, spread=model.spread, jump=model.jump)
    windows = (request.newest - first) // request.slide + 1
    return ModelArrays(base64.b64encode(body.getvalue()).decode(), model.shrinkage, windows)


def _pieces(first: int, newest: int, slide: int) -> list[tuple[int, int]]:
    """The pieces of the tasks: each from and up to the end of a window."""
    count = (newest - first) // slide + 1
    size = max(BLOCK, -(-count // BLOCKS))
    return [
        (first + start * slide, min(first + (start + size - 1) * slide, newest))
        for start in range(0, count, size)
    ]


def _first(request: LearnModel) -> int:
    """The end of the oldest window there is to learn from."""
    statement = sql.SQL(
        "SELECT min(_ts) FROM {} WHERE _stream LIKE {} AND _ts >= {} AND _ts <= {}"
    ).format(
        table_name(request.table),
        *map(sql.Literal, (request.streams, request.oldest, request.newest)),
    )
    with closing(database_of(request.sink.opened()).connect()) as connection:
        row = connection.execute(statement).fetchone()
    if row is None or row[0] is None:
        raise SiteError(f"table {request.table} has no windows to learn from")
    return int(row[0])


def _read(request: LearnModel, piece: tuple[int, int]) -> WindowBlock:
    """The computed rows, without estimates, of windows that end in this piece of time."""
    start, end = piece
    statement = sql.SQL(
        "SELECT _ts, {}, {} FROM {} WHERE _stream LIKE {} AND _ts >= {} AND _ts <= {}"
        " AND NOT estimated"
    ).format(
        sql.Identifier(request.value),
        sql.SQL(", ").join(map(sql.Identifier, request.key_columns)),
        table_name(request.table),
        *map(sql.Literal, (request.streams, start, end)),
    )
    columns = {tuple(key): index for index, key in enumerate(request.keys)}
    windows: Floats = np.full(((end - start) // request.slide + 1, len(columns)), np.nan)
    with closing(database_of(request.sink.opened()).connect()) as connection:
        for ts, value, *key in connection.execute(statement):
            place = columns.get(tuple(key))
            if place is not None and value is not None:
                windows[(ts - start) // request.slide, place] = value
    return WindowBlock(windows, windows)
