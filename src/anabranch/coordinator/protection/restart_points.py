"""Where tasks would restart, as far as the sites know, and what those that read them need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.protection.assignments import Assignments
from anabranch.errors import SiteError
from anabranch.link.messages import AskConsumer, ConsumerState, Needs, Points
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint, gather

KnownPoints = Mapping[str, RestartPoint]


class RestartPoints:
    """Asks the sites each time: points move on all the while."""

    def __init__(self, sites: Sites, assignments: Assignments) -> None:
        self._sites = sites
        self._assignments = assignments

    async def points(self, *needed: str) -> dict[str, RestartPoint]:
        """Task → the newest restart point that any site has of it: of those that run, and of those
        that ran before their site was killed, as they or those they read know. Each is true, so
        they join. Raises the error of a site that is `needed` and does not say."""
        answers = await self._sites.ask(Points())
        for site in needed:
            if site not in answers:
                answers[site] = await self._sites.call(site, Points())
        found = gather(answers.values())
        return {
            name: point
            for name, point in found.items()
            if point.incarnation == self._assignments.incarnation(name)
        }

    async def consumer_state(self, spec: TaskSpec) -> Told | None:
        """What those that a task reads remember of it: its newest restart point, and what they have
        let go of; None if one of them cannot be asked. It was told to each at another time."""
        point: RestartPoint | None = None
        released = []
        for index, source in enumerate(spec.inputs):
            request = AskConsumer(source.stream, spec.consumer(index))
            try:
                answer: ConsumerState = await self._sites.reach(source.site, request)
            except SiteError:
                return None
            released.append(answer.released)
            if told := answer.restart:
                point = point.join(told) if point else told
        return Told(point, tuple(released))

    def consumers(
        self, spec: TaskSpec, known: Definitions, points: KnownPoints
    ) -> dict[str, Needs]:
        """Who reads the task's output: what each still needs, and the epoch it is in."""
        return {
            task.consumer(index): self.told_by(task, index, points)
            for task in tasks(known.values(), known)
            for index, source in enumerate(task.inputs)
            if source.stream == spec.output
        }

    def told_by(self, task: TaskSpec, index: int, points: KnownPoints) -> Needs:
        """What a reader would tell the producer of one of its inputs, to attach it there: where it
        once began, if it died before it could say more."""
        point = points.get(task.name) or self._assignments.first(task.name)
        assignment = self._assignments.get(task.name)
        after = point.inputs[index] if point else 0
        return Needs(after, point, assignment.epoch if assignment else 0, task.born)

    async def start(self, spec: TaskSpec, points: KnownPoints) -> RestartPoint:
        """Where a standby begins: where the task once began, if nobody knows a later point. What
        its readers need must not lie before, nor what its producers have let go of behind: then
        somebody knows more than those we hear of."""
        told = await self.consumer_state(spec)
        known = [
            points.get(spec.name),
            told.point if told else None,
            self._assignments.first(spec.name),
        ]
        found = [one for one in known if one and one.incarnation == self._incarnation(spec)]
        point = found[0] if found else None
        for other in found[1:]:
            point = point.join(other) if point else other
        if point is None or (told and any(map(int.__lt__, point.inputs, told.released))):
            raise SiteError(f"nobody says where {spec.name} would restart")
        return point

    def _incarnation(self, spec: TaskSpec) -> int:
        return self._assignments.incarnation(spec.name)


@dataclass(frozen=True)
class Told:
    point: RestartPoint | None
    released: tuple[int, ...]
