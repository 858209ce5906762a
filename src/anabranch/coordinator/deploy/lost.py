"""What sites ought to run and do not, and which of it can only go on together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError
from anabranch.link.messages import Status
from anabranch.link.reports import SiteReport
from anabranch.plan.catalog import QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import Definitions, parts_read, settled_sink, tasks
from anabranch.runtime.base import Runtime

STATUS_S = 3.0
Lost = Mapping[str, set[str]]
"""Site → the sources and tasks that should run there and do not."""


def streams_read(known: Definitions) -> set[str]:
    read = {source.stream for task in tasks(known.values(), known) for source in task.inputs}
    return read | parts_read(read, known)


async def lost_sites(
    runtime: Runtime,
    sites: Sites,
    known: Definitions,
    protector: Protector,
    among: Collection[str] | None = None,
) -> dict[str, set[str]]:
    """What sites that are up, or those `among` them, ought to run and do not. A task with a standby
    comes back by it, and so does the sink that goes with it. All are asked at once."""
    wanted: dict[str, set[str]] = {}
    along = {
        one.name
        for one in known.values()
        if isinstance(one, QueryDef) and protector.keeps(one.name) and settled_sink(one) is None
    }
    for task in tasks(known.values(), known):
        if not protector.keeps(task.name) and not (task.sink and task.query in along):
            wanted.setdefault(task.site, set()).add(task.name)
    filled = protector.filled(known)
    for one in known.values():
        if isinstance(one, StreamDef | TableDef) and one.name not in filled:
            wanted.setdefault(one.site, set()).add(one.name)
    read = streams_read(known)
    alive = set(sites.alive()) if among is None else set(sites.alive()) & set(among)
    asked = sorted(wanted.keys() & alive)
    reports = await runtime.outcomes([sites.call(site, Status(), STATUS_S) for site in asked])
    lost: dict[str, set[str]] = {}
    for site, report in zip(asked, reports, strict=True):
        if not isinstance(report, AnabranchError) and (gone := wanted[site] - _here(report, read)):
            lost[site] = gone
    return lost


def _here(report: SiteReport, read: Collection[str]) -> set[str]:
    """The sources and tasks there, without what only stands by."""
    standing_by = {one.name for one in report.tasks if one.role != "primary"}
    return begun(report, read) - standing_by


def begun(report: SiteReport, read: Collection[str]) -> set[str]:
    """The sources and tasks that a site's report shows at work. What is only prepared is not:
    whoever was about to start it may have died. A source that nobody reads waits rightly."""
    sources = {
        one.stream for one in report.sources if one.state != "waiting" or one.stream not in read
    }
    return sources | {one.name for one in report.tasks if one.state != "waiting"}


def names_in(lost: Lost) -> set[str]:
    return set().union(*lost.values())


def only(lost: Lost, names: Collection[str]) -> dict[str, set[str]]:
    """Of what is lost, these."""
    found = {site: gone & set(names) for site, gone in lost.items()}
    return {site: gone for site, gone in found.items() if gone}


def in_parts(lost: Lost, known: Definitions) -> list[dict[str, set[str]]]:
    """What hangs together by streams that are lost as well comes in one part: whoever reads one of
    them can only go on with who gives it. Parts of a stage go on with what merges them."""
    together = _Together(names_in(lost))
    for names in _neighbours(names_in(lost), known):
        together.join(names)
    return [only(lost, part) for part in together.parts()]


def by_sites(parts: Iterable[Lost]) -> list[dict[str, set[str]]]:
    """Parts of the same sites as one: a site that hangs holds up no others."""
    found: dict[frozenset[str], dict[str, set[str]]] = {}
    for part in parts:
        whole = found.setdefault(frozenset(part), defaultdict(set))
        for site, names in part.items():
            whole[site] |= names
    return [dict(one) for one in found.values()]


def _neighbours(gone: Collection[str], known: Definitions) -> Iterator[set[str]]:
    producers = {task.output: task.name for task in tasks(known.values(), known) if task.output}
    for task in tasks(known.values(), known):
        for source in task.inputs:
            yield {task.name, source.stream, producers.get(source.stream, source.stream)}
        if task.output:  # a stream that a pocket fills has a name of its own
            yield {task.name, task.output}
    stages: defaultdict[str, set[str]] = defaultdict(set)
    for name in gone:
        if isinstance(one := known.get(name), StreamDef) and one.stage:
            stages[one.stage.name].add(name)
    yield from stages.values()


class _Together:
    """Names that belong together, joined two and more at a time; others than `names` count not."""

    def __init__(self, names: Collection[str]) -> None:
        self._parts = {name: {name} for name in sorted(names)}

    def join(self, names: Collection[str]) -> None:
        joined = [self._parts[name] for name in names if name in self._parts]
        whole = set().union(*joined)
        for name in whole:
            self._parts[name] = whole

    def parts(self) -> list[set[str]]:
        return list({id(part): part for part in self._parts.values()}.values())
