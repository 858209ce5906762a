"""Where tasks would restart, as far as the sites know, and what those that read them need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from anabranch.coordinator.deploy import Definitions, tasks
from anabranch.coordinator.rulers import Rulers
from anabranch.coordinator.sites import Sites
from anabranch.errors import SiteError
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import gather, point_of

Point = dict[str, Any]
Points = Mapping[str, Point]


class Standings:
    """Asks the sites each time: points move on all the while."""

    def __init__(self, sites: Sites, rulers: Rulers) -> None:
        self._sites = sites
        self._rulers = rulers

    def points(self) -> dict[str, Point]:
        """Task → the newest restart point that any site has of it: of those that run, and of those
        that ran before their site was killed, as they or those they read know. Each is true, so
        they join."""
        answers = self._sites.ask(self._sites.alive(), "points").values()
        told = [{name: point_of(point) for name, point in points.items()} for points in answers]
        return {name: asdict(point) for name, point in gather(told).items()
                if point.birth == self._rulers.birth(name)}  # fmt: skip

    def standing(self, spec: TaskSpec) -> Point | None:
        """The newest restart point of a task that those it reads remember; None if one of them
        cannot be asked. It was told to each of them at another time."""
        point: Point | None = None
        for index, source in enumerate(spec.inputs):
            consumer = spec.consumer(index)
            request = {"stream": source.stream, "consumer": consumer}
            try:
                answer = self._sites.peer(source.site).call("standing", timeout_s=2.0, **request)
            except SiteError:
                return None
            told = answer["restart"]
            if told:
                point = _joined(point, told) if point else told
        return point

    def consumers(self, spec: TaskSpec, known: Definitions, points: Points) -> dict[str, Any]:
        """Who reads the task's output: what each still needs, and the epoch it is in."""
        found: dict[str, Any] = {}
        for task in tasks(known.values(), known):
            for index, source in enumerate(task.inputs):
                if source.stream == spec.output:
                    found[task.consumer(index)] = self.told_by(task, index, points)
        return found

    def told_by(self, task: TaskSpec, index: int, points: Points) -> dict[str, Any]:
        """What a reader would tell the producer of one of its inputs, to attach it there."""
        point, ruler = points.get(task.name), self._rulers.get(task.name)
        after = point["inputs"][index] if point else 0
        return {"after": after, "point": point, "epoch": ruler.epoch if ruler else 0}

    def start(self, spec: TaskSpec, points: Points) -> Point:
        """Where a standby begins. What its readers need must not lie before: then somebody knows
        more than we do, and will be heard of."""
        told = [one for one in (points.get(spec.name), self.standing(spec)) if one]
        if not told:
            raise SiteError(f"nobody says where {spec.name} would restart")
        return told[0] if len(told) == 1 else _joined(*told)


def _joined(one: Point, other: Point) -> Point:
    """See stream.restart.RestartPoint.join."""
    joined = point_of(one).join(point_of(other))
    return dict(other) | asdict(joined)
