"""What a coordinator says of the whole system: every site's report and what is amiss."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from anabranch.coordinator.base.sites import Sites, is_starting
from anabranch.coordinator.deploy.wanted import WantedThere
from anabranch.coordinator.protection.protect import Protector
from anabranch.coordinator.status.query_states import is_asked_for, query_states
from anabranch.errors import SiteError
from anabranch.link.messages import Status as SiteStatus
from anabranch.plan.catalog import ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import Definitions, tasks

Status = dict[str, Any]
Obstacles = Mapping[str, Status]
UP = {"state": "up", "problem": ""}


def system_status(
    sites: Sites,
    known: Definitions,
    protector: Protector,
    obstacles: Obstacles,
    wanted: WantedThere,
    *,
    ask: bool = True,
) -> Status:
    """Every site with a report, or why there is none: a fresh one, or, if nobody is to be asked,
    that of its last heartbeat. `obstacles`: source or task → why it cannot go on."""
    reports = with_obstacles(_asked(sites) if ask else heard(sites), known, obstacles)
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    pockets = [one for one in known.values() if isinstance(one, PocketDef)]
    protection = protector.report()
    return {
        "pid": os.getpid(),
        "states": query_states(reports, known, protection),
        "sites": [
            one | _missing(one, reports, known, protector) | {"ghosts": _ghosts(one, wanted)}
            for one in reports
        ],
        "homes": {
            one.name: one.site for one in known.values() if isinstance(one, QueryDef | PocketDef)
        },
        "runs": {one.name: one.run for one in queries},
        "streams": [one.name for one in known.values() if isinstance(one, StreamDef)],
        "tables": [one.name for one in known.values() if isinstance(one, TableDef)],
        "pockets": [one.name for one in pockets],
        "protection": protection,
        "standbys": {
            one.name: str(one.standby)
            for one in known.values()
            if isinstance(one, QueryDef | PocketDef) and one.standby
        },
        "reads": {one.name: one.reads for one in known.values() if is_asked_for(one)},
        "workers": {
            one.name: [worker.query for worker in one.workers]
            for one in known.values()
            if isinstance(one, ApproximateDef)
        },
        "ends": {query.name: query.ends_with for query in queries}
        | {one.output: one.reads for one in pockets}
        | {one.name: one.reads for one in pockets},
    }


def heard(sites: Sites) -> list[Status]:
    """What every site said last."""
    alive = sites.alive()
    return [_heard(sites, name, alive) for name in _names(sites)]


def _asked(sites: Sites) -> list[Status]:
    names = _names(sites)
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(names)))) as pool:
        return list(pool.map(partial(_site, sites), names))


def _names(sites: Sites) -> list[str]:
    return list(dict.fromkeys([*sites.names(), *sites.starting()]))


def _site(sites: Sites, name: str) -> Status:
    """Of one that does not answer: where and in which process it was last."""
    since = sites.starting().get(name)
    if since is not None:
        return _silent(sites, name, "starting", is_starting(since))
    try:
        report: Status = sites.peer(name).send(SiteStatus(), 3.0)
    except SiteError as error:
        return _silent(sites, name, "unreachable", error.line())
    return _up(report)


def _up(report: Status) -> Status:
    """It answers, but perhaps its Spark does not."""
    problem = report.get("problem", "")
    return report | (UP if not problem else {"state": "stuck", "problem": problem})


def _heard(sites: Sites, name: str, alive: Collection[str]) -> Status:
    """What a site said last; a site that has said nothing for too long is gone."""
    since = sites.starting().get(name)
    if since is not None:
        return _silent(sites, name, "starting", is_starting(since))
    record = sites.record(name)
    if name not in alive or record is None or not record.report:
        return _silent(sites, name, "unreachable", "no heartbeat")
    return _up(record.report)


def with_obstacles(
    reports: Iterable[Status], known: Definitions, obstacles: Obstacles
) -> list[Status]:
    """Of each site that is up what it has not been given again, and why. It is stuck if one of the
    reasons stays until a person does something."""
    at = {task.name: task.site for task in tasks(known.values(), known)}
    at |= {one.name: one.site for one in known.values() if isinstance(one, StreamDef | TableDef)}
    told = []
    for report in reports:
        held = {name: one for name, one in obstacles.items() if at.get(name) == report["site"]}
        final = dict.fromkeys(one["reason"] for one in held.values() if not one["passes"])
        stuck = {"state": "stuck", "problem": f"cannot go on: {'; '.join(final)}"}
        told.append(report | {"held": held} | (stuck if final and report["state"] == "up" else {}))
    return told


def _silent(sites: Sites, name: str, state: str, problem: str) -> Status:
    record = sites.record(name)
    last = {"address": record.address, "pid": record.pid} if record else {}
    nothing = {"tasks": [], "sources": [], "state": state, "problem": problem}
    return {"site": name, "address": "", "pid": 0} | last | nothing


def _ghosts(report: Status, wanted: WantedThere) -> list[str]:
    """What still runs at a site though it was dropped: it stops it with its next heartbeats."""
    return sorted({one.name for one in wanted.at(report["site"]).ghosts(report)})


def _missing(
    report: Status, reports: list[Status], known: Definitions, protector: Protector
) -> Status:
    """What the catalog has at a site that does not run there now, and what of it is `lost`: no
    other site has it either, as its new primary or as a standby that is about to be."""
    site = report["site"]
    sources = {one.name for one in known.values()
               if isinstance(one, StreamDef | TableDef) and one.site == site}  # fmt: skip
    sources -= {one["stream"] for one in report["sources"]} | protector.filled(known)
    wanted = {task.name for task in tasks(known.values(), known) if task.site == site}
    wanted -= {one["name"] for one in report["tasks"] if one["role"] == "primary"}
    others = {task["name"] for one in reports if one["site"] != site
              for task in one["tasks"] if not task["error"]}  # fmt: skip
    return {"missing": sorted(sources | wanted), "lost": sorted(sources | (wanted - others))}
