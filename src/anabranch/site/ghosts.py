"""What a site runs though the catalog does not have it, any more or yet: it is stopped here.

A `DROP` does not wait for sites that are out of reach. They learn what they should run from the
answer to each heartbeat, and stop the rest by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.link.messages import Drop
from anabranch.link.reports import SiteReport
from anabranch.plan.wanted import Running, Wanted
from anabranch.runtime.base import Runtime
from anabranch.runtime.log import note
from anabranch.site.deployment import Deployment


class Ghosts:
    """A ghost is stopped, and a reader let go of, when two reports in a row had it and the answers
    to both did not want it: an answer may have been on its way while something was deployed."""

    def __init__(self, runtime: Runtime, deployment: Deployment) -> None:
        self._runtime = runtime
        self._deployment = deployment
        self._seen: set[Running] = set()
        self._readers: set[tuple[str, str]] = set()

    def heard(self, wanted: Wanted, report: SiteReport) -> None:
        """The answer to `report`, which is what the coordinator knew of us when it gave it."""
        now = wanted.ghosts(report.running())
        stopped, self._seen = now & self._seen, now
        if stopped:
            self._runtime.spawn(self._stop(stopped), "ghosts")
        readers = set(_unwanted(wanted, report))
        gone, self._readers = readers & self._readers, readers
        for stream, consumer in gone:
            if outlet := self._deployment.outlets.get(stream):
                outlet.detach(consumer)

    async def _stop(self, ghosts: Iterable[Running]) -> None:
        tasks = {one.name: one.born for one in ghosts if one.kind == "task"}
        sources = {one.name: one.born for one in ghosts if one.kind == "source"}
        for name in (*tasks, *sources):
            note("stopped", f"{name} stopped: it was dropped while this site was away", query=name)
        await self._deployment.drop(Drop(tuple(tasks), tuple(sources), born=tasks | sources))


def _unwanted(wanted: Wanted, report: SiteReport) -> Iterable[tuple[str, str]]:
    """Readers of streams here that are none of the catalog's tasks. Programs hold a lease."""
    for stream, consumers in report.consumers.items():
        for consumer in consumers:
            if stream in wanted.readers and consumer not in wanted.readers[stream]:
                yield stream, consumer
