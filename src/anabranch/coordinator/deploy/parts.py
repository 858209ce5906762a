"""Moves servers of stages that are lost for good: another site goes on from the global database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import Turns
from anabranch.errors import AnabranchError
from anabranch.link.messages import DropTasks
from anabranch.plan.catalog import AnyDef, StreamDef
from anabranch.plan.definitions import tasks

DROP_S = 10.0


class LostParts:
    """`say` is called with what was moved. A site that comes back later no longer has it."""

    def __init__(
        self, sites: Sites, catalog: Catalog, turns: Turns, say: Callable[[str], None]
    ) -> None:
        self._sites = sites
        self._catalog = catalog
        self._turns = turns
        self._say = say
        self._gone: dict[str, float] = {}
        """Site → since when it has been away."""
        self._left: dict[str, str] = {}
        """Stream → a site that may run it still, though it was moved."""

    def find(self, now: float) -> list[StreamDef]:
        """The streams whose sites have been away for too long, as they should be from now on."""
        known, alive = self._catalog.definitions(), set(self._sites.alive())
        staged = [one for one in known.values() if isinstance(one, StreamDef) and is_shared(one)]
        away = {one.site for one in staged} - alive
        self._gone = {site: self._gone.get(site, now) for site in away}
        return moved(staged, {site: now - since for site, since in self._gone.items()}, alive)

    async def move(self, streams: Iterable[StreamDef]) -> None:
        """Moves the streams. Their readers are stopped; they go on from their restart points with
        the new place when the restorer puts them back.
        """
        new = {one.name: one for one in streams}
        known = self._catalog.definitions()
        readers = [
            task
            for task in tasks(known.values(), known)
            if any(source.stream in new for source in task.inputs)
        ]
        async with self._turns.of([*new, *(task.query for task in readers)]):
            before = self._catalog.definitions()
            still = [one for name, one in new.items() if name in before]
            self._catalog.replace(still)
        for reader in still:
            was = _site(before[reader.name])
            self._left[reader.name] = was
            self._say(f"{reader.site} goes on with {reader.name}, since {was} is lost")
        for task in readers:
            with suppress(AnabranchError):  # one that is gone as well is restored anyway
                await self._sites.call(task.site, DropTasks((task.name,), resume=True), DROP_S)

    async def tidy(self) -> None:
        """Stops what was moved at a site that was only out of reach."""
        alive = set(self._sites.alive())
        for stream, site in list(self._left.items()):
            definition = self._catalog.definitions().get(stream)
            if definition is None or _site(definition) == site:
                del self._left[stream]
            elif site in alive:
                with suppress(AnabranchError):
                    await self._sites.call(site, DropTasks((), (stream,)), DROP_S)
                    del self._left[stream]


def is_shared(definition: AnyDef) -> bool:
    """Whether it belongs to a stage whose state another site can go on with."""
    return (
        isinstance(definition, StreamDef)
        and definition.stage is not None
        and definition.stage.parts > 1
    )


def moved(
    staged: Iterable[AnyDef], away_s: Mapping[str, float], alive: Collection[str]
) -> list[StreamDef]:
    """The streams at their new sites: each goes to the one of the stage's sites that has fewest of
    its streams.
    """
    streams = [one for one in staged if isinstance(one, StreamDef) and one.stage]
    at = {one.name: one.site for one in streams}
    streams_ = []
    for stream in streams:
        stage = stream.stage
        assert stage is not None
        sites = [site for site in stage.sites if site in alive]
        if away_s.get(stream.site, 0.0) * 1e6 <= stage.lost_us or not sites:
            continue
        same = {other.name for other in streams if other.stage and other.stage.name == stage.name}
        load = [at[name] for name in same]
        site = min(sites, key=lambda name: (load.count(name), stage.sites.index(name)))
        at[stream.name] = site
        update = {"site": site, "stage": stage.model_copy(update={"moves": stage.moves + 1})}
        streams_.append(stream.model_copy(update=update))
    return streams_


def _site(definition: AnyDef) -> str:
    assert isinstance(definition, StreamDef)
    return definition.site
