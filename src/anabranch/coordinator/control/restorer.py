"""Sites go on with what they lost when their processes died: as far as they can by now, and with
the rest as soon as they can.

Nothing here is deployed from the beginning, and nothing is deleted: what cannot go on is left as it
is, shown with the reason, and tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.coordinator.base.turns import Obstacles, Turns
from anabranch.coordinator.deploy.wanted import (
    Lost,
    begun,
    by_sites,
    in_parts,
    lost_sites,
    names_in,
    only,
    streams_read,
)
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError, CannotResume
from anabranch.link.messages import (
    Addresses,
    Announce,
    Attach,
    Begin,
    DropTasks,
    Prepare,
    SetPositions,
    Start,
    StartSources,
)
from anabranch.link.reports import Delay
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime
from anabranch.stream.restart import FOREVER, RestartPoint


class Restoration:
    """Restores what is `lost`; all else goes on meanwhile.

    A task begins again at its restart point: its input from then on is still with the producers, or
    is read again from its source, and its output up to then is safe with its readers.
    """

    def __init__(self, sites: Sites, lost: Lost, known: Definitions, protector: Protector) -> None:
        self._sites = sites
        self._known = known
        self._lost = lost
        self._protector = protector
        all_tasks = tasks(known.values(), known)
        self._tasks = [task for task in all_tasks if task.name in lost.get(task.site, ())]
        self._sources = [
            one
            for one in known.values()
            if isinstance(one, StreamDef | TableDef) and one.name in lost.get(one.site, ())
        ]
        gone = {one.name for one in self._sources} | {task.output for task in self._tasks}
        self._readers = [task for task in all_tasks if any(i.stream in gone for i in task.inputs)]
        self._gone = gone
        self._points: dict[str, RestartPoint] = {}

    async def run(self) -> None:
        """Restores. If this raises, nothing that was prepared stays, because it would pass for
        running.
        """
        try:
            await self._run()
        except AnabranchError:
            for site in self._lost:
                sources = tuple(one.name for one in self._sources if one.site == site)
                names = tuple(task.name for task in self._at(site))
                with suppress(AnabranchError):
                    await self._sites.call(site, DropTasks(names, sources, resume=True))
            raise

    async def _run(self) -> None:
        for site in self._lost:
            self._sites.check_state(site)
        self._points = await self._protector.restart_points.points(*self._lost)
        for site in self._lost:
            await self._prepare(site)
        for task in self._tasks:
            if task.name not in self._points:
                self._points[task.name] = await self._begin(task)
        await self._place()
        await self._attach_readers()
        for site in self._lost:
            begins = {task.name: Begin(self._points[task.name]) for task in self._at(site)}
            await self._sites.call(site, Start(begins), PREPARE_S)
        read = streams_read(self._known)
        for site in self._lost:
            names = [one.name for one in self._sources if one.site == site and one.name in read]
            await self._sites.call(site, StartSources(tuple(names)))

    def _at(self, site: str) -> Iterator[TaskSpec]:
        return (task for task in self._tasks if task.site == site)

    async def _prepare(self, site: str) -> None:
        sources = tuple(one for one in self._sources if one.site == site)
        await self._sites.call(site, Prepare(sources, tuple(self._at(site)), True), PREPARE_S)
        await self._sites.call(site, Addresses(self._sites.addresses()))
        await self._sites.call(site, Announce(self._protector.routes()))

    async def _begin(self, task: TaskSpec) -> RestartPoint:
        """Restores a task for which no site knows a restart point, since it was killed before it
        had one, or since the file with it is damaged. It begins as upstream remembers it, or where
        it once began. Raises CannotResume if upstream has released what it would read there.
        """
        starts = [
            await self._sites.call(
                source.site,
                Attach(
                    source.stream,
                    task.consumer(index),
                    0 if source.table else None,
                    born=task.born,
                    past=source.past,
                ),
            )
            for index, source in enumerate(task.inputs)
        ]
        assignments = self._protector.assignments
        state = await self._protector.restart_points.consumer_state(task)
        if state and state.point:
            return state.point
        first = assignments.first(task.name)
        if first is None:
            incarnation = assignments.incarnation(task.name)
            return RestartPoint(tuple(starts), 0, incarnation=incarnation)
        if state and any(map(int.__lt__, first.inputs, state.released)):
            raise CannotResume(
                f"nobody knows any more where {task.name} would restart: it began behind"
                f" {_listed(first.inputs)} of its inputs, and {_listed(state.released)} have been"
                " let go of since",
                place=f"site {task.site}",
                remedy="Restore its state folder from a backup, or drop the query and create it"
                " again.",
            )
        return first

    async def _place(self) -> None:
        """Places every outlet where the first of its readers needs it to begin."""
        needed: dict[str, int] = {}
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                point = self._points.get(task.name)
                position = point.inputs[index] if point else 0
                needed[source.stream] = min(position, needed.get(source.stream, position))
        for site in self._lost:
            outputs = {
                task.output: self._points[task.name].output
                for task in self._at(site)
                if task.output
            }
            sources = {
                one.name: needed.get(one.name, FOREVER)
                for one in self._sources
                if one.site == site and one.name not in outputs
            }
            await self._sites.call(site, SetPositions(outputs, sources))

    async def _attach_readers(self) -> None:
        """Attaches the readers of what was lost, wherever they are, so that tuples are kept for
        them again.
        """
        for task in self._readers:
            for index, source in enumerate(task.inputs):
                if source.stream in self._gone:
                    needs = self._protector.restart_points.told_by(task, index, self._points)
                    request = Attach(
                        source.stream,
                        task.consumer(index),
                        needs.after,
                        needs.point,
                        needs.epoch,
                        born=needs.born,
                    )
                    await self._sites.call(source.site, request)


def _listed(positions: tuple[int, ...]) -> str:
    return " and ".join(f"{one:,}" for one in positions)


class Restorer:
    def __init__(
        self,
        runtime: Runtime,
        sites: Sites,
        catalog: Catalog,
        protector: Protector,
        turns: Turns,
        say: Callable[[str], None],
    ) -> None:
        self.obstacles = Obstacles(say)
        self._runtime = runtime
        self._sites = sites
        self._catalog = catalog
        self._protector = protector
        self._turns = turns
        self._under_way: set[str] = set()

    async def run(self) -> list[str]:
        """Puts back what sites ran before they were killed. Returns the sites that still lack
        something, or did when they were asked. It leaves what somebody else is putting back, and
        what should not be tried again yet, for later.
        """
        lost = await self.lost()
        now = self._runtime.now()
        self.obstacles.keep(names_in(lost) | self._under_way, now)
        names = names_in(lost) - self._under_way - self.obstacles.in_the_way(now)
        if names:
            self._under_way |= names
            try:
                await self._put_back(only(lost, names))
            finally:
                self._under_way -= names
        return list(lost)

    async def _put_back(self, lost: Lost) -> None:
        """Puts it back in the background, so that waiting for the turn of somebody's statement
        delays nobody else.
        """
        known = self._catalog.definitions()
        parts = in_parts(lost, known)
        free = [one for one in parts if self._turns.free(_owners(one, known))]
        waiting = [one for one in parts if one not in free]
        await self._runtime.outcomes([self._in_turn(one) for one in (*by_sites(free), *waiting)])

    async def _in_turn(self, lost: Lost) -> None:
        async with self._turns.of(_owners(lost, self._catalog.definitions())):
            again = await self.lost(lost)  # who had the turn may have done it
            if still := only(again, names_in(lost)):
                await self._together(still)

    async def _together(self, lost: Lost) -> None:
        """Puts all back at once if possible, or else each connected part by itself: an obstacle of
        one part does not concern the others.
        """
        parts = in_parts(lost, self._catalog.definitions())
        if len(parts) > 1:
            try:
                await self.restore(lost)
            except AnabranchError:
                await self._runtime.outcomes([self._part(part) for part in parts])
            else:
                self.obstacles.over(names_in(lost), self._runtime.now())
        else:
            await self._part(lost)

    async def _part(self, lost: Lost) -> None:
        try:
            await self.restore(lost)
        except AnabranchError as error:
            self.obstacles.met(names_in(lost), error, self._runtime.now())
        else:
            self.obstacles.over(names_in(lost), self._runtime.now())

    async def restore(self, lost: Lost) -> None:
        """Restores all of it or nothing. Raises the obstacle."""
        if lost:
            known = self._catalog.definitions()
            await Restoration(self._sites, lost, known, self._protector).run()

    async def lost(self, among: Collection[str] | None = None) -> dict[str, set[str]]:
        known = self._catalog.definitions()
        return await lost_sites(self._runtime, self._sites, known, self._protector, among)

    def something_is_missing(self) -> bool:
        """Whether something is missing, by the reports that sites sent: cheap, and perhaps not
        quite up to date. What cannot go on yet counts once it is due to be tried again.
        """
        running: set[str] = set()
        alive = self._sites.alive()
        known = self._catalog.definitions()
        read = streams_read(known)
        for record in filter(None, map(self._sites.record, alive)):
            running |= begun(record.report, read) if record.report else set()
        waiting = self.obstacles.in_the_way(self._runtime.now()) | self._under_way
        return any(
            name not in running | waiting and site in alive
            for name, site in _wanted(known, self._protector)
        )

    def report(self) -> dict[str, Delay]:
        """Maps what cannot go on yet to the reason, the time, and whether the reason may pass."""
        return self.obstacles.report(self._runtime.now())


def _wanted(known: Definitions, protector: Protector) -> Iterable[tuple[str, str]]:
    filled = protector.filled(known)
    for definition in known.values():
        if isinstance(definition, StreamDef | TableDef) and definition.name not in filled:
            yield definition.name, definition.site
    for task in tasks(known.values(), known):
        yield task.name, task.site


def _owners(lost: Lost, known: Definitions) -> set[str]:
    """The definitions that the lost things belong to."""
    gone = names_in(lost)
    queries = {task.query for task in tasks(known.values(), known) if task.name in gone}
    return queries | {name for name in gone if name in known}
