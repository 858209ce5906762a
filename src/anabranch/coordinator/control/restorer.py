"""Has sites go on with what they lost, as far as it can by now, and the rest as soon as it can.

Nothing is deployed anew here, and nothing is deleted: what cannot go on is left as it is, shown
with the reason, and tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.obstacles import Obstacles
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import Turns
from anabranch.coordinator.deploy.lost import (
    Lost,
    begun,
    by_sites,
    in_parts,
    lost_sites,
    names_in,
    only,
    streams_read,
)
from anabranch.coordinator.deploy.restore import Restoration
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError
from anabranch.link.reports import Delay
from anabranch.plan.catalog import StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks
from anabranch.runtime.base import Runtime


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
        """Put back what sites ran before they were killed; the sites that lack something still or
        did when they were asked. What somebody is putting back already, and what is not to be
        tried again yet, is left to later."""
        found = await self.lost()
        now = self._runtime.now()
        self.obstacles.keep(names_in(found) | self._under_way, now)
        names = names_in(found) - self._under_way - self.obstacles.in_the_way(now)
        if names:
            self._under_way |= names
            try:
                await self._put_back(only(found, names))
            finally:
                self._under_way -= names
        return list(found)

    async def _put_back(self, lost: Lost) -> None:
        """Who waits for a turn, of a statement that somebody carries out, holds up nobody else."""
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
        """All at once if that can be, else each part that hangs together by itself: what stands in
        the way of one is nothing to the others."""
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
        """All of it or nothing. Raises what stands in the way."""
        if lost:
            known = self._catalog.definitions()
            await Restoration(self._sites, lost, known, self._protector).run()

    async def lost(self, among: Collection[str] | None = None) -> dict[str, set[str]]:
        known = self._catalog.definitions()
        return await lost_sites(self._runtime, self._sites, known, self._protector, among)

    def something_is_missing(self) -> bool:
        """By the reports that sites sent: cheap, and perhaps not quite up to date. What cannot go
        on yet counts once it is to be tried again."""
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
        """What cannot go on yet → why, since when, and whether that may pass."""
        return self.obstacles.report(self._runtime.now())


def _wanted(known: Definitions, protector: Protector) -> Iterable[tuple[str, str]]:
    filled = protector.filled(known)
    for one in known.values():
        if isinstance(one, StreamDef | TableDef) and one.name not in filled:
            yield one.name, one.site
    for task in tasks(known.values(), known):
        yield task.name, task.site


def _owners(lost: Lost, known: Definitions) -> set[str]:
    """The definitions that what is lost belongs to."""
    gone = names_in(lost)
    queries = {task.query for task in tasks(known.values(), known) if task.name in gone}
    return queries | {name for name in gone if name in known}
