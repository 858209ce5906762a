"""Decides which ranges are taken next, and how: combined first or as they are."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping

from anabranch.stage.inputs import PartitionedInput
from anabranch.stage.messages import CALL_S, EndPartitions, FindGaps
from anabranch.stage.offsets import OffsetRange
from anabranch.stage.process import ServerProcess
from anabranch.stage.work import Report

WORTH = 0.9
"""Aggregating a range first is worth it if this part of it or less is left."""
ASK_AGAIN = 16
"""Ranges after which it is tried again."""
LOOK_S = 0.1
"""Between two looks whether there is more."""


class Ranges:
    """Hands out the ranges of an input, in order within a partition. Thread-safe; never asks the
    state server while it holds its lock."""

    def __init__(self, input: PartitionedInput) -> None:
        self._input = input
        self._lock = threading.Lock()
        self._gaps: dict[str, deque[OffsetRange]] = {}
        self._again: deque[OffsetRange] = deque()
        self._tries: dict[OffsetRange, int] = {}
        self._ends: dict[str, int] = {}
        self._server: ServerProcess | None = None
        self._looked = 0.0
        self.combine = True
        """Whether tasks aggregate what they read: not if that left most of it, when last tried."""
        self._done = 0
        self.spent = {"read": 0.0, "aggregate": 0.0, "put": 0.0, "job": 0.0}
        """Seconds of all tasks, by what they were spent on; `job` is Spark's own part."""

    def reset(self, server: ServerProcess) -> None:
        """A state server has begun: the ranges that it lacks are taken (again)."""
        ends = self._input.ends()
        gaps = server.peer.send(FindGaps(ends), CALL_S)
        if self._input.finite:
            server.peer.send(EndPartitions(ends), CALL_S)
        with self._lock:
            self._server = server
            self._ends = ends
            self._gaps = {name: deque() for name in ends}
            for gap in gaps:
                self._gaps[gap.partition].append(gap)
            self._again.clear()

    def take(self) -> tuple[OffsetRange, ServerProcess] | None:
        """The next range, and the server that lacks it: another server's gaps would be cut
        differently. None if there is nothing to do at present.
        """
        with self._lock:
            range_ = self._again.popleft() if self._again else self._cut()
            return (range_, self._server) if range_ and self._server else None

    def _cut(self) -> OffsetRange | None:
        """A range of the partition that has most left to do."""
        left = {name: sum(g.end - g.begin for g in gaps) for name, gaps in self._gaps.items()}
        name = max(left, key=lambda one: left[one], default=None)
        if name is None or not left[name]:
            return None
        gap = self._gaps[name].popleft()
        range = self._input.cut(gap)
        if range.end < gap.end:
            self._gaps[name].appendleft(OffsetRange(name, range.end, gap.end))
        return range

    def look(self) -> dict[str, int]:
        """The ends of partitions, if it is time to look and there may be more."""
        with self._lock:
            if self._input.finite or time.monotonic() < self._looked + LOOK_S:
                return {}
            self._looked = time.monotonic()
        return self._input.ends()

    def unknown(self, ends: Mapping[str, int]) -> dict[str, int]:
        """The partitions among `ends` that are new, each with its start."""
        with self._lock:
            return {name: 0 for name in ends if name not in self._ends}

    def extend(self, ends: Mapping[str, int]) -> None:
        """Adds input up to `ends`, of partitions that the state server knows."""
        with self._lock:
            for name, end in ends.items():
                begin = self._ends.get(name, 0)
                if end > begin:
                    self._gaps.setdefault(name, deque()).append(OffsetRange(name, begin, end))
                    self._ends[name] = end

    def again(self, range: OffsetRange, server: ServerProcess, tries: int) -> bool:
        """Takes a range back whose task was lost; False if that has happened `tries` times now."""
        with self._lock:
            if server is not self._server:
                return True
            self._tries[range] = self._tries.get(range, 0) + 1
            if self._tries[range] >= tries:
                return False
            self._again.append(range)
            return True

    def done(self, range: OffsetRange, report: Report, job_s: float) -> None:
        """Takes note that a range's Spark job took `job_s` in all."""
        with self._lock:
            parts = {"read": report.read_s, "aggregate": report.aggregate_s, "put": report.put_s}
            for name, seconds in (parts | {"job": job_s - sum(parts.values())}).items():
                self.spent[name] += seconds
            self._tries.pop(range, None)
            self._done += 1
            if self.combine and report.rows:
                self.combine = report.partials < WORTH * report.rows
            elif self._done % ASK_AGAIN == 0:
                self.combine = True
