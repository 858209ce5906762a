"""A task and the clock: when its next instance is due, how large it may be, what was late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

import numpy as np

from anabranch.deadline.urgency import NO_DEADLINE
from anabranch.link.inlet import LiveInlet
from anabranch.plan.service_levels import Urgency
from anabranch.site.tasks.measures import Measures


class Times(TypedDict):
    """The times in a task's report."""

    deadline_ms: float | None
    sub_deadline_ms: float | None
    laxity_ms: float | None
    judged: int
    late: int
    overran: int


PAST_US = 10_000_000
"""A tuple that comes so long after it entered the system is of the past: somebody reads what was
kept, or a link was cut."""


def _entered(arrival: int, born: int) -> int:
    """When a tuple counts as having entered. One of the past counts from its arrival: else those
    who read the past would come before all who have to do with the present."""
    return born if arrival - born < PAST_US else arrival


class Timeliness:
    """`urgency` may change while the task runs. Its instances write, anybody may read."""

    def __init__(
        self, urgency: Urgency | None, deadline_us: int | None, measures: Measures
    ) -> None:
        self.urgency = urgency
        self._deadline_us = deadline_us
        self._measures = measures
        self.judged = 0
        self.late = 0
        """Results that left the system after the query's deadline, and `judged` all of them."""
        self.overran = 0
        """Results that left this task later than the sub-deadlines up to it allow."""

    def due(self, inlets: Iterable[LiveInlet[Any]], now_us: int) -> tuple[int, int]:
        """The absolute deadline of an instance that takes what waits, by its oldest tuple, and when
        that tuple entered the system; both in µs. It follows (12), and the rest of the way from the
        source.
        """
        oldest = [one for one in (inlet.oldest() for inlet in inlets) if one]
        born = min((_entered(*times) for times in oldest), default=now_us)
        if self.urgency is None:
            return NO_DEADLINE, born
        arrival = min((arrival for arrival, _ in oldest), default=now_us)
        due = min(arrival + self.urgency.deadline_us, born + self.urgency.summed_us)
        if self.urgency.best_effort and due < now_us:
            # Were it urgent still, all that piles up would make others late, one after the other.
            return NO_DEADLINE, born
        return due, born

    def laxity_us(self) -> int | None:
        """The time that a usual instance has to spare."""
        if self.urgency is None:
            return None
        return self.urgency.deadline_us - round(self._measures.usual_s() * 1e6)

    def most_rows(self, most: int, allowed_us: int | None) -> int:
        """How many tuples an instance may take to end in time for others."""
        if allowed_us is None or most == 1:
            return most
        found = self._measures.rows_within(allowed_us / 1e6)
        return most if found is None else min(most, found)

    @property
    def judges(self) -> bool:
        return self.urgency is not None or self._deadline_us is not None

    def judge(self, born: np.ndarray, now_us: int) -> None:
        """Counts which results are late here, by when they were born."""
        ages = now_us - born
        if self.urgency:
            self.overran += int(np.count_nonzero(ages > self.urgency.summed_us))
        if self._deadline_us:
            self.judged += len(ages)
            self.late += int(np.count_nonzero(ages > self._deadline_us))

    def report(self) -> Times:
        laxity = self.laxity_us()
        return Times(
            deadline_ms=self._deadline_us / 1e3 if self._deadline_us else None,
            sub_deadline_ms=self.urgency.deadline_us / 1e3 if self.urgency else None,
            laxity_ms=None if laxity is None else laxity / 1e3,
            judged=self.judged,
            late=self.late,
            overran=self.overran,
        )
