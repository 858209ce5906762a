"""Lessons are learnt one after the other, beside the watch: the model by a Spark job of a site,
from all that the query's table holds; the bounds here, from what was kept."""

from __future__ import annotations

import base64
import io
import queue
from collections.abc import Callable

import numpy as np

from anabranch.approx.model import Model
from anabranch.approx.plan import Plan
from anabranch.connectors.postgres.once import stream_pattern
from anabranch.coordinator.approximate.lesson import Lesson
from anabranch.coordinator.base.sites import Sites
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.messages import LearnModel
from anabranch.plan.catalog import ApproximateDef
from anabranch.runtime.threads import supervised

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
        self._learnt: dict[str, tuple[Lesson, Plan, int]] = {}
        self._lessons: queue.Queue[tuple[ApproximateDef, Lesson] | None] = queue.Queue()
        self._thread = supervised("learning", self._run)
        self._thread.start()

    def close(self) -> None:
        self._lessons.put(None)
        self._thread.join(CLOSE_S)

    def begin(self, made: ApproximateDef, lesson: Lesson) -> None:
        """Unless another lesson of this query is being learnt."""
        if made.template.run not in self._begun:
            self._begun.add(made.template.run)
            self._lessons.put((made, lesson))

    def done(self, made: ApproximateDef) -> tuple[Lesson, Plan, int] | None:
        """What has been learnt, and from how many windows; once."""
        return self._learnt.pop(made.template.run, None)

    def _run(self) -> None:
        while (asked := self._lessons.get()) is not None:
            made, lesson = asked
            try:
                self._learnt[made.template.run] = self._learn(made, lesson)
            except Exception as error:  # of one query: the others are learnt on
                self.problems[made.name] = f"cannot learn: {type(error).__name__}: {error}"
            self._begun.discard(made.template.run)

    def _learn(self, made: ApproximateDef, lesson: Lesson) -> tuple[Lesson, Plan, int]:
        self.problems.pop(made.name, None)
        try:
            model, windows = self._job(made, lesson)
        except AnabranchError as error:
            self.problems[made.name] = f"learnt without Spark: {error.line()}"
            return lesson, lesson.plan(), len(lesson.history)
        return lesson, lesson.plan(model), windows


def by_spark(sites: Sites, made: ApproximateDef, lesson: Lesson) -> tuple[Model, int]:
    """By a job of the site that has least to do."""
    there = {site: record for site in sites.alive() if (record := sites.record(site))}
    if not there:
        raise SiteError("no site is up that could learn")
    best = min(there, key=lambda site: len(there[site].tasks))
    asked = LearnModel(
        sink=made.sink,
        streams=stream_pattern(made.name),
        key_columns=made.keys,
        value=made.value,
        keys=[list(key) for key in lesson.keys],
        oldest=lesson.oldest,
        newest=lesson.newest,
        slide=made.slide_us,
    )
    answer = sites.peer(best).send(sites.filled(asked), JOB_S)
    with np.load(io.BytesIO(base64.b64decode(answer.arrays)), allow_pickle=False) as found:
        arrays = [found[name] for name in ("mean", "sample", "spread", "jump")]
    mean, sample, spread, jump = arrays
    return Model(mean, sample, answer.shrinkage, spread, jump), answer.windows
