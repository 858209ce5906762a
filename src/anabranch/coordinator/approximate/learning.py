"""What takes long about approximate queries goes on beside the watch: lessons are learnt one
after the other, and dead workers are replaced.
"""

from __future__ import annotations

import base64
import io
import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from anabranch.approx.assign.problem import Workers
from anabranch.approx.calibration import ALL_PARTS
from anabranch.approx.gaussian import Floats
from anabranch.approx.model import Model
from anabranch.approx.plan import EstimationPlan, Promise, judged, learnt
from anabranch.connectors.postgres.once import stream_pattern
from anabranch.coordinator.approximate.results import Key
from anabranch.coordinator.base.sites import Sites
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.messages import LearnModel
from anabranch.plan.catalog import ApproximateDef
from anabranch.runtime.loop import supervised


@dataclass(frozen=True)
class Lesson:
    """`history` has the windows up to the one that ends at `newest`, as far as they are here;
    windows that end before `oldest` are not learnt from. `workers` are the columns of each worker.
    """

    promise: Promise
    keys: list[Key]
    workers: Workers
    oldest: int
    newest: int
    history: Floats

    def plan(self, model: Model | None = None) -> EstimationPlan:
        """The plan with bounds from rehearsals of `history`. If `model` is given, it was learnt
        from more windows, and is used instead.
        """
        learnt_here, rehearsal, weight = learnt(self.history, self.promise, ALL_PARTS)
        return judged(
            model or learnt_here, rehearsal, weight, self.promise, self.workers, ALL_PARTS
        )


JOB_S = 120.0
CLOSE_S = 5.0
ModelJob = Callable[[ApproximateDef, Lesson], tuple[Model, int]]
"""A model from all windows from the lesson's oldest to its newest, and their number."""


class Learning:
    def __init__(self, job: ModelJob) -> None:
        self.problems: dict[str, str] = {}
        """Query → why its model was learnt here, from fewer windows."""
        self._job = job
        self._begun: set[str] = set()
        self._learnt: dict[str, tuple[Lesson, EstimationPlan, int]] = {}
        self._lessons: queue.Queue[tuple[ApproximateDef, Lesson] | None] = queue.Queue()
        self._thread = supervised("learning", self._run)
        self._thread.start()

    def close(self) -> None:
        self._lessons.put(None)
        self._thread.join(CLOSE_S)

    def begin(self, query: ApproximateDef, lesson: Lesson) -> None:
        """Begins the lesson, unless another lesson of this query is being learnt."""
        if query.template.run not in self._begun:
            self._begun.add(query.template.run)
            self._lessons.put((query, lesson))

    def done(self, query: ApproximateDef) -> tuple[Lesson, EstimationPlan, int] | None:
        """Returns the newest lesson with its plan and the number of windows it was learnt from, and
        forgets it.
        """
        return self._learnt.pop(query.template.run, None)

    def _run(self) -> None:
        while (job := self._lessons.get()) is not None:
            query, lesson = job
            try:
                self._learnt[query.template.run] = self._learn(query, lesson)
            except Exception as error:  # of one query: the others are learnt on
                self.problems[query.name] = f"cannot learn: {type(error).__name__}: {error}"
            self._begun.discard(query.template.run)

    def _learn(self, query: ApproximateDef, lesson: Lesson) -> tuple[Lesson, EstimationPlan, int]:
        self.problems.pop(query.name, None)
        try:
            model, windows = self._job(query, lesson)
        except AnabranchError as error:
            self.problems[query.name] = f"learnt without Spark: {error.line()}"
            return lesson, lesson.plan(), len(lesson.history)
        return lesson, lesson.plan(model), windows


def by_spark(sites: Sites, query: ApproximateDef, lesson: Lesson) -> tuple[Model, int]:
    """Learns the model by a job of the site that has least to do."""
    records = {site: record for site in sites.alive() if (record := sites.record(site))}
    if not records:
        raise SiteError("no site is up that could learn")
    best = min(records, key=lambda site: len(records[site].tasks))
    request = LearnModel(
        sink=query.sink,
        streams=stream_pattern(query.name),
        key_columns=query.keys,
        value=query.value,
        keys=[list(key) for key in lesson.keys],
        oldest=lesson.oldest,
        newest=lesson.newest,
        slide=query.slide_us,
    )
    answer = sites.peer(best).send(sites.filled(request), JOB_S)
    with np.load(io.BytesIO(base64.b64decode(answer.arrays)), allow_pickle=False) as stored:
        arrays = [stored[name] for name in ("mean", "sample", "spread", "jump")]
    mean, sample, spread, jump = arrays
    return Model(mean, sample, answer.shrinkage, spread, jump), answer.windows


AT_ONCE = 4


class WorkerChanges:
    """`wake` is called when a change has been made, or has failed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.problems: dict[str, str] = {}
        """Query → why it could not be changed, the last time that was tried."""
        self._wake = wake
        self._pool = ThreadPoolExecutor(AT_ONCE, "change")
        self._begun: dict[tuple[str, str], Future[None]] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, query: ApproximateDef, what: str, change: Callable[[], None]) -> None:
        """Begins the change unless it has begun."""
        place = (query.template.run, what)
        if place not in self._begun:
            self._begun[place] = self._pool.submit(change)
            self._begun[place].add_done_callback(lambda done: self._wake())

    def done(self, query: ApproximateDef, what: str) -> bool:
        """Whether the change has been made; True only once. If it failed, it may be begun again."""
        place = (query.template.run, what)
        if place not in self._begun or not self._begun[place].done():
            return False
        self.problems.pop(query.name, None)
        try:
            self._begun.pop(place).result()
        except AnabranchError as error:
            self.problems[query.name] = error.line()
            return False
        return True
