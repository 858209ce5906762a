"""A Spark of this process: started, warmed up, and ended when closed."""

from __future__ import annotations

import atexit
import gc
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.config.model import SiteSettings
from anabranch.scratch import scratch_folder
from anabranch.spark.jvm import jvm
from anabranch.spark.kept.expressions import Expressions, Mode
from anabranch.spark.kept.kept_session import KeptSession
from anabranch.spark.memory import besides_heap, footprint
from anabranch.spark.session import start_session, stop_session

_warm = threading.Lock()
_warmed: set[int] = set()


class OwnSpark:
    """A session and the folder it may write to. If `last_words` are given, the process ends with
    its JVM, after having said them.
    """

    def __init__(
        self,
        config: SiteSettings,
        name: str,
        *,
        scratch: Path | None = None,
        progress: Callable[[str], None] = lambda text: None,
        last_words: Callable[[str], None] | None = None,
    ) -> None:
        self._scratch = scratch or scratch_folder()
        try:
            progress(f"Starting Spark ({config.master}) …")
            self.session = start_session(config.master, config.conf, name, self._scratch)
            if last_words:
                jvm.end_with_it(lambda why: self._end(last_words, why))
            progress("Warming up …")
            far = not config.master.startswith("local[")
            warm_up(self.session, jobs=far or config.plans == "job")
        except BaseException:
            jvm.closing()
            self._tidy()
            raise

    def _end(self, last_words: Callable[[str], None], why: str) -> None:
        last_words(why)
        self._tidy()

    def _tidy(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def close(self) -> None:
        jvm.closing()
        stop_session(self.session)
        self._tidy()


def warm_up(spark: SparkSession, *, jobs: bool = False) -> None:
    """Plans and runs a small query, as tasks do, so that the first real one does not pay for
    loading classes. With `jobs` it also runs jobs, because these will come, or executors have to be
    there first. It does so once a session.
    """
    with _warm:
        if id(spark) in _warmed:
            return
        if not evaluate_small_query(spark):
            KeptSession.of(spark).distrusted = "this Spark evaluates kept plans to something else"
        if jobs:
            evaluate_small_query(spark, "job", times=3)
        _warmed.add(id(spark))
        gc.freeze()
        atexit.register(gc.unfreeze)  # extensions complain of what the process's end does not free
        footprint.warm(besides_heap(spark))


def evaluate_small_query(spark: SparkSession, mode: Mode = "kept", times: int = 20) -> bool:
    """Whether it gave what it has to each time."""
    table = pa.table({"n": range(100), "x": [0.5] * 100, "s": ["a"] * 100})

    def build(frame: DataFrame) -> DataFrame:
        chosen = frame.alias("t").where("t.n > 1 AND x < 2")
        return chosen.selectExpr("n + 1 AS n", "x * 2 AS x", "upper(s) AS s")

    wanted = pa.table({"n": range(3, 101), "x": [1.0] * 98, "s": ["A"] * 98})
    expressions = Expressions(spark, mode)
    evaluate = expressions.evaluation(table.schema, build)
    right = [evaluate(table).to_pydict() == wanted.to_pydict() for _ in range(times)]
    expressions.close()
    return all(right)
