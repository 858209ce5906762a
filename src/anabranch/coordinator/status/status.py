"""The status that a coordinator computes from what sites report, and from what it knows itself."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from anabranch.coordinator.base.reports import (
    AnySite,
    ApproximationReport,
    PlacementReport,
    ProtectionReport,
    QueryState,
    SilentSite,
    SiteStatus,
    SystemStatus,
)
from anabranch.coordinator.base.sites import Sites, is_starting
from anabranch.coordinator.deploy.wanted import WantedThere
from anabranch.coordinator.protection.protect import Protector
from anabranch.coordinator.status.query_states import is_asked_for, query_states
from anabranch.errors import SiteError
from anabranch.link.messages import Status
from anabranch.link.reports import Delay
from anabranch.plan.catalog import ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks
from anabranch.runtime.troubles import TroubleReport

ASK_S = 3.0
Obstacles = Mapping[str, Delay]
"""Source or task → why it has not been put back."""


@dataclass(frozen=True)
class Seen:
    """Every site, and what follows for the queries."""

    sites: tuple[AnySite, ...]
    states: dict[str, QueryState]
    protection: dict[str, ProtectionReport]


def look(
    sites: Sites,
    known: Definitions,
    protector: Protector,
    obstacles: Obstacles,
    wanted: WantedThere,
    *,
    ask: bool = True,
) -> Seen:
    """Every site with a report, or why there is none: a fresh one, or, if nobody is to be asked,
    that of its last heartbeat.
    """
    reports = with_obstacles(_asked(sites) if ask else heard(sites), known, obstacles)
    protection = protector.report()
    return Seen(
        tuple(_compared(one, reports, known, protector, wanted) for one in reports),
        query_states(reports, known, protection),
        protection,
    )


def system_status(
    seen: Seen,
    known: Definitions,
    *,
    address: str,
    placement: dict[str, PlacementReport],
    deadlines: str,
    approximations: dict[str, ApproximationReport],
    endings: dict[str, str],
    troubles: tuple[TroubleReport, ...],
) -> SystemStatus:
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    pockets = [one for one in known.values() if isinstance(one, PocketDef)]
    movable = [one for one in known.values() if isinstance(one, QueryDef | PocketDef)]
    ends = {query.name: tuple(query.ends_with) for query in queries}
    ends |= {one.output: tuple(one.reads) for one in pockets}
    ends |= {one.name: tuple(one.reads) for one in pockets}
    return SystemStatus(
        address=address,
        placement=placement,
        deadlines=deadlines,
        approximations=approximations,
        endings=endings,
        troubles=troubles,
        pid=os.getpid(),
        states=seen.states,
        sites=seen.sites,
        homes={one.name: one.site for one in movable},
        runs={one.name: one.run for one in queries},
        streams=tuple(one.name for one in known.values() if isinstance(one, StreamDef)),
        tables=tables_in(known),
        pockets=tuple(one.name for one in pockets),
        protection=seen.protection,
        standbys={one.name: str(one.standby) for one in movable if one.standby},
        reads={one.name: tuple(one.reads) for one in known.values() if is_asked_for(one)},
        workers={
            one.name: tuple(worker.query for worker in one.workers)
            for one in known.values()
            if isinstance(one, ApproximateDef)
        },
        ends=ends,
    )


def tables_in(known: Definitions) -> tuple[str, ...]:
    return tuple(one.name for one in known.values() if isinstance(one, TableDef))


def heard(sites: Sites) -> list[AnySite]:
    """The last report of every site."""
    alive = sites.alive()
    return [_heard(sites, name, alive) for name in _names(sites)]


def _asked(sites: Sites) -> list[AnySite]:
    names = _names(sites)
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(names)))) as pool:
        return list(pool.map(partial(_site, sites), names))


def _names(sites: Sites) -> list[str]:
    return list(dict.fromkeys([*sites.names(), *sites.starting()]))


def _site(sites: Sites, name: str) -> AnySite:
    """The site's status. For a site that does not answer it says where and in which process it was
    last.
    """
    since = sites.starting().get(name)
    if since is not None:
        return _silent(sites, name, "starting", is_starting(since))
    try:
        return SiteStatus.of(sites.peer(name).send(Status(), ASK_S))
    except SiteError as error:
        return _silent(sites, name, "unreachable", error.line())


def _heard(sites: Sites, name: str, alive: Collection[str]) -> AnySite:
    """The last report of a site; a site that has been silent for too long is gone."""
    since = sites.starting().get(name)
    if since is not None:
        return _silent(sites, name, "starting", is_starting(since))
    record = sites.record(name)
    if name not in alive or record is None or record.report is None:
        return _silent(sites, name, "unreachable", "no heartbeat")
    return SiteStatus.of(record.report)


def _silent(sites: Sites, name: str, state: str, problem: str) -> SilentSite:
    record = sites.record(name)
    address, pid = (record.address, record.pid) if record else ("", 0)
    return SilentSite(site=name, address=address, pid=pid, state=state, problem=problem, held={})


def with_obstacles(
    sites: Iterable[AnySite], known: Definitions, obstacles: Obstacles
) -> list[AnySite]:
    """The sites that are up with what they have not been given again, and why. A site is stuck if
    one of the reasons stays until a person does something.
    """
    at = {task.name: task.site for task in tasks(known.values(), known)}
    at |= {one.name: one.site for one in known.values() if isinstance(one, StreamDef | TableDef)}
    reports: list[AnySite] = []
    for site in sites:
        held = {name: one for name, one in obstacles.items() if at.get(name) == site.site}
        final = dict.fromkeys(one.reason for one in held.values() if not one.passes)
        if final and site.state == "up":
            problem = f"cannot go on: {'; '.join(final)}"
            reports.append(replace(site, held=held, state="stuck", problem=problem))
        else:
            reports.append(replace(site, held=held))
    return reports


def _compared(
    site: AnySite,
    sites: list[AnySite],
    known: Definitions,
    protector: Protector,
    wanted: WantedThere,
) -> AnySite:
    """The site with what is missing there, what of that no other site has either, as its new
    primary or as a standby that is about to be; and what still runs there though it was dropped,
    which it stops with its next heartbeats.
    """
    own = {
        one.name
        for one in known.values()
        if isinstance(one, StreamDef | TableDef) and one.site == site.site
    }
    sources = own - {one.stream for one in site.sources} - protector.filled(known)
    missing = {task.name for task in tasks(known.values(), known) if task.site == site.site}
    missing -= {one.name for one in site.tasks if one.role == "primary"}
    others = {
        task.name for one in sites if one.site != site.site for task in one.tasks if not task.error
    }
    running = site.running() if isinstance(site, SiteStatus) else ()
    return replace(
        site,
        missing=tuple(sorted(sources | missing)),
        lost=tuple(sorted(sources | (missing - others))),
        ghosts=tuple(sorted({one.name for one in wanted.at(site.site).ghosts(running)})),
    )
