"""Restart points: from where a task's inputs must be replayed to continue its output exactly."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

START_WATERMARK = -(2**63)
"""Nothing is known yet: any tuple may still come."""
END_WATERMARK = 2**63 - 1
"""No tuple will ever come: the stream has ended."""


FOREVER = 2**63 - 1
"""A position behind all others: whoever needs nothing up to it needs nothing any more."""


@dataclass(frozen=True, slots=True, order=True)
class SnapshotName:
    """The `number`-th state that the task of `epoch` kept at `site`. Later ones are greater."""

    epoch: int
    number: int
    site: str


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """Replaying every input i from `inputs[i] + 1` on reproduces the outputs from `output + 1` on.

    The whole vector travels with every ack, because the acks of one task reach its several inputs
    at different times: a restart takes the point with the greatest `output`.

    A replay may contain inputs that open windows still need and that have had results before:
    results with an event time up to `instant` are among the first `output` ones. (Where windows are
    counted by rows, results of windows that end at or before the position `instant`.)

    With a `snapshot` that state is restored first. It holds the inputs up to where it was taken,
    and what lies between there and `inputs` is not needed for the results after `output`.

    `readers` are the points of all tasks behind this one, those that read its readers included: the
    first `output` results are needed no more because of them. So whoever remembers where a task
    restarts also remembers it of all that is behind it, though these may have died together. It is
    one map by task, without readers of their own: per path it would repeat where streams meet.
    """

    inputs: tuple[int, ...]
    output: int
    instant: int = START_WATERMARK
    incarnation: int = field(default=0, repr=False)
    """The number of the task's creation: of another of the same name nothing holds here."""
    readers: Mapping[str, RestartPoint] = field(default_factory=dict, repr=False)
    snapshot: SnapshotName | None = None

    def join(self, other: RestartPoint) -> RestartPoint:
        """A point that is as far as both: input that one run of the task did not need for its
        results after `output`, none needs for results after a later one.
        """
        if other is self or other == self:
            return self
        if self.incarnation != other.incarnation:
            return max(self, other, key=lambda point: point.incarnation)
        readers = join_all(self.readers, other.readers)
        inputs = tuple(map(max, self.inputs, other.inputs))
        if self.snapshot and other.snapshot and self.snapshot != other.snapshot:
            newer = self if self.snapshot > other.snapshot else other
            if newer.inputs != inputs:  # an earlier run that nobody believes any more
                return newer.before(readers)
        return RestartPoint(
            inputs,
            max(self.output, other.output),
            max(self.instant, other.instant),
            self.incarnation,
            readers,
            _needed(inputs, self, other),
        )

    @property
    def finished(self) -> bool:
        """Whether all its results are out and safe, though an input may go on."""
        return FOREVER in self.inputs

    @property
    def alone(self) -> RestartPoint:
        """The point without its readers'."""
        return self.before({}) if self.readers else self

    def before(self, readers: Mapping[str, RestartPoint]) -> RestartPoint:
        """The same point with other `readers`."""
        return RestartPoint(
            self.inputs, self.output, self.instant, self.incarnation, readers, self.snapshot
        )


def _needed(
    inputs: tuple[int, ...], mine: RestartPoint, other: RestartPoint
) -> SnapshotName | None:
    """The state that a restart after `inputs` begins with: none if a point that has none is as far
    on every input."""
    if any(point.snapshot is None and point.inputs == inputs for point in (mine, other)):
        return None
    return max(filter(None, (mine.snapshot, other.snapshot)), default=None)


Points = Mapping[str, RestartPoint]


def join_all(points: Points, other: Points) -> dict[str, RestartPoint]:
    """All that either knows, joined where both know something."""
    if not points or points is other:
        return dict(other)
    return {
        **points,
        **{name: point.join(points.get(name, point)) for name, point in other.items()},
    }


def beyond(task: str, consumers: Points) -> dict[str, RestartPoint]:
    """What a task's point says of its readers, from what these said as consumers. It says nothing
    of the task itself, in case its results come back to it in a circle.
    """
    points: dict[str, RestartPoint] = {}
    for name, point in consumers.items():
        said = {_task(name, consumers): point.alone}
        points = join_all(points, join_all(said, point.readers))
    points.pop(task, None)
    return points


def gather(known: Iterable[Points]) -> dict[str, RestartPoint]:
    """Task → the newest known point, from these and from all tasks downstream of them. For a task
    that only others told of, its readers are among theirs.
    """
    newest: dict[str, RestartPoint] = {}
    for points in known:
        for name, point in points.items():
            said = {_task(name, points): point}
            for reader, reader_point in point.readers.items():
                others = {who: its for who, its in point.readers.items() if who != reader}
                said[reader] = reader_point.before(others)
            newest = join_all(newest, said)
    return newest


def told_to(consumer: str, readers: Points) -> RestartPoint | None:
    """What a point's `readers` say of the reader with this name, and of all tasks downstream of
    it.
    """
    base = consumer.rpartition("#")[0]
    task = consumer if consumer in readers or not base else base
    if task not in readers:
        return None
    others = {name: point for name, point in readers.items() if name != task}
    return readers[task].before(others)


def _task(name: str, points: Points) -> str:
    """The task that reads under this name: `q#2` is the second input of `q`, if both are of one
    incarnation, or else a task with this very name.
    """
    first = points.get(base := name.rpartition("#")[0])
    return base if first and first.incarnation == points[name].incarnation else name


def point_of(data: Mapping[str, Any]) -> RestartPoint:
    """The point that `asdict` turned into `data`, which may hold other keys, too."""
    return RestartPoint(
        tuple(data["inputs"]),
        data["output"],
        data.get("instant", START_WATERMARK),
        data.get("incarnation", 0),
        {name: point_of(one) for name, one in data.get("readers", {}).items()},
        SnapshotName(**data["snapshot"]) if data.get("snapshot") else None,
    )


class RestartLog:
    """The restart points of one task that downstream has not yet made obsolete, oldest first."""

    def __init__(self, start: RestartPoint) -> None:
        self._current = self._newest = start.alone
        self._ahead: deque[RestartPoint] = deque()
        self._acknowledged = start.output

    @property
    def current(self) -> RestartPoint:
        """The newest point that downstream's acks have reached."""
        return self._current

    @property
    def newest(self) -> RestartPoint:
        """Where a restart would begin if all results were safe."""
        return self._newest

    @property
    def snapshots(self) -> set[SnapshotName]:
        """Those that a restart may begin with."""
        points = (self._current, self._newest, *self._ahead)
        return {point.snapshot for point in points if point.snapshot}

    def add(self, point: RestartPoint) -> None:
        """Record where the task now stands. Points never go back; with a snapshot they need not,
        though open windows began before it."""
        newest = self._newest
        point = replace(point, incarnation=newest.incarnation)
        if (point.output, point.instant) < (newest.output, newest.instant) or (
            newest.snapshot is None and any(map(int.__lt__, point.inputs, newest.inputs))
        ):
            raise ValueError(f"restart point went back from {newest} to {point}")
        point = newest.join(point)
        if point == newest:
            return
        self._newest = point
        if self._ahead and self._ahead[-1].output == point.output:
            self._ahead[-1] = point
        else:
            self._ahead.append(point)

    def add_kept(self, point: RestartPoint) -> RestartPoint | None:
        """The state that `point` names is kept by now, though the task may have gone on since.
        Returns the current point if that has moved."""
        point = replace(point, incarnation=self._newest.incarnation)
        self._newest = self._newest.join(point)
        earlier = [one for one in self._ahead if one.output < point.output]
        later = [one.join(point) for one in self._ahead if one.output >= point.output]
        if not later or later[0].output > point.output:
            later.insert(0, point)
        self._ahead = deque([*earlier, *later])
        return self.acknowledge(self._acknowledged)

    def acknowledge(self, output: int) -> RestartPoint | None:
        """Takes note that nobody needs the results up to `output` any more; returns the newest
        point that this frees, if any.
        """
        before = self._current
        self._acknowledged = max(self._acknowledged, output)
        while self._ahead and self._ahead[0].output <= output:
            self._current = self._current.join(self._ahead.popleft())
        return self._current if self._current != before else None

    def learn(self, point: RestartPoint) -> None:
        """Learns that another run of the task got acks for this point: a restart need not go back
        before it, though this run may not be there yet.
        """
        self._current = self._current.join(point.alone)
