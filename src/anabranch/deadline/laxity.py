"""How long an instance may run before it makes a more urgent one late.

An instance is not interrupted. So a task that arrives just after it has begun waits for its end;
that must take no longer than half of what a more urgent task can spare: its sub-deadline minus its
own cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class Laxities:
    """The tasks that share a processor, as (sub-deadline, laxity), in any unit of time."""

    def __init__(self, tasks: Iterable[tuple[int, int]] = ()) -> None:
        self._deadlines: list[int] = []
        self._least: list[int] = []
        for deadline, laxity in sorted(tasks):
            self._deadlines.append(deadline)
            self._least.append(min(laxity, self._least[-1]) if self._least else laxity)

    def allowed(self, deadline: int) -> int | None:
        """The longest that an instance with that sub-deadline may run; None if no task is more
        urgent. It is half of what the least lax of these can spare, since the other half may be
        needed for what is due before it; 0 if it has nothing to spare.
        """
        more_urgent = bisect_left(self._deadlines, deadline)
        return max(0, self._least[more_urgent - 1]) // 2 if more_urgent else None
