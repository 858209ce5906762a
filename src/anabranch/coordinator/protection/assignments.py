"""Which site runs each task that may move, which one stands by, and where each would restart, as
far as the sites know.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Mapping
from dataclasses import asdict, dataclass

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.errors import SiteError
from anabranch.link.messages import AskConsumer, ConsumerState, Needs, Points
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint, gather


@dataclass(frozen=True, slots=True)
class Assignment:
    """`site` runs the task in `epoch`; `standby` would run it in the epoch `claim`."""

    site: str
    epoch: int
    standby: str | None = None
    claim: int = 0
    stream: str = ""
    """What the task puts out."""

    def succeeded(self, site: str, epoch: int) -> Assignment:
        """The assignment after another site has taken over; it has no standby yet."""
        return Assignment(site, epoch, None, epoch, self.stream)


class Assignments:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        kept = json.loads(catalog.setting("assignments") or "{}")
        self._assignments = {name: Assignment(**one) for name, one in kept.items()}
        self._incarnations: dict[str, int] = json.loads(catalog.setting("incarnations") or "{}")
        self._starts: dict[str, list[int]] = json.loads(catalog.setting("starts") or "{}")
        self._past: set[str] = set(json.loads(catalog.setting("past assignments") or "[]"))

    def __getitem__(self, task: str) -> Assignment:
        return self._assignments[task]

    def get(self, task: str) -> Assignment | None:
        return self._assignments.get(task)

    def items(self) -> ItemsView[str, Assignment]:
        return dict(self._assignments).items()

    def set(self, task: str, assignment: Assignment) -> None:
        self._assignments[task] = assignment
        self._save()

    def forget(self, task: str) -> None:
        if self._assignments.pop(task, None):
            self._past.add(task)
            self._catalog.remember("past assignments", json.dumps(sorted(self._past)))
            self._save()

    def had(self, task: str) -> bool:
        """Whether there was an assignment of that name. A site that was away may still believe it,
        so the next one must have a later epoch.
        """
        return task in self._past

    def _save(self) -> None:
        kept = {name: asdict(one) for name, one in self._assignments.items()}
        self._catalog.remember("assignments", json.dumps(kept))

    def create(self, tasks: Mapping[str, tuple[int, ...]]) -> None:
        """Takes note that tasks are created and begin after these positions: facts about earlier
        tasks of the same names are not theirs.
        """
        self._incarnations |= {task: self.next_epoch() for task in tasks}
        self._starts |= {task: list(inputs) for task, inputs in tasks.items()}
        self._catalog.remember("incarnations", json.dumps(self._incarnations))
        self._catalog.remember("starts", json.dumps(self._starts))

    def first(self, task: str) -> RestartPoint | None:
        """The point where it began."""
        if task not in self._starts:
            return None
        return RestartPoint(tuple(self._starts[task]), 0, incarnation=self.incarnation(task))

    def incarnation(self, task: str) -> int:
        return self._incarnations.get(task, 0)

    def next_epoch(self) -> int:
        """A new epoch, never the same twice, even after a restart."""
        return self._catalog.next_number()


KnownPoints = Mapping[str, RestartPoint]


class RestartPoints:
    """Asks the sites each time: points move on all the while."""

    def __init__(self, sites: Sites, assignments: Assignments) -> None:
        self._sites = sites
        self._assignments = assignments

    async def points(self, *needed: str) -> dict[str, RestartPoint]:
        """Task → the newest restart point that any site has of it: of running tasks, and of tasks
        that ran before their site was killed, as they or their producers know. Each is true, so the
        newest is. Raises the error of a site that is `needed` and does not answer.
        """
        answers = await self._sites.ask(Points())
        for site in needed:
            if site not in answers:
                answers[site] = await self._sites.call(site, Points())
        points = gather(answers.values())
        return {
            name: point
            for name, point in points.items()
            if point.incarnation == self._assignments.incarnation(name)
        }

    async def consumer_state(self, spec: TaskSpec) -> RememberedState | None:
        """What the producers of a task remember of it: its newest restart point, and what they have
        released; None if one of them cannot be asked. It was told to each at another time.
        """
        point: RestartPoint | None = None
        released = []
        for index, source in enumerate(spec.inputs):
            request = AskConsumer(source.stream, spec.consumer(index))
            try:
                answer: ConsumerState = await self._sites.reach(source.site, request)
            except SiteError:
                return None
            released.append(answer.released)
            if newest := answer.restart:
                point = point.join(newest) if point else newest
        return RememberedState(point, tuple(released))

    def consumers(
        self, spec: TaskSpec, known: Definitions, points: KnownPoints
    ) -> dict[str, Needs]:
        """The readers of the task's output: what each still needs, and its epoch."""
        return {
            task.consumer(index): self.told_by(task, index, points)
            for task in tasks(known.values(), known)
            for index, source in enumerate(task.inputs)
            if source.stream == spec.output
        }

    def told_by(self, task: TaskSpec, index: int, points: KnownPoints) -> Needs:
        """What a reader would tell the producer of one of its inputs, to attach it there: where it
        once began, if it died before it could say more.
        """
        point = points.get(task.name) or self._assignments.first(task.name)
        assignment = self._assignments.get(task.name)
        after = point.inputs[index] if point else 0
        return Needs(after, point, assignment.epoch if assignment else 0, task.born)

    async def start(self, spec: TaskSpec, points: KnownPoints) -> RestartPoint:
        """The point where a standby begins: where the task once began, if nobody knows a later
        point. Nothing that its readers need may lie before it, and nothing that its producers have
        released may lie after it: otherwise somebody knows more than those we hear of.
        """
        state = await self.consumer_state(spec)
        known = [
            points.get(spec.name),
            state.point if state else None,
            self._assignments.first(spec.name),
        ]
        points_ = [one for one in known if one and one.incarnation == self._incarnation(spec)]
        point = points_[0] if points_ else None
        for other in points_[1:]:
            point = point.join(other) if point else other
        if point is None or (state and any(map(int.__lt__, point.inputs, state.released))):
            raise SiteError(f"nobody says where {spec.name} would restart")
        return point

    def _incarnation(self, spec: TaskSpec) -> int:
        return self._assignments.incarnation(spec.name)


@dataclass(frozen=True)
class RememberedState:
    point: RestartPoint | None
    released: tuple[int, ...]
