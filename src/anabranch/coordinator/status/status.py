"""What a coordinator says of the whole system: every site's report and what is amiss."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from anabranch.coordinator.control.sites import Sites, is_starting
from anabranch.coordinator.deploy.deploy import Definitions, tasks
from anabranch.coordinator.protection.protect import Protector
from anabranch.coordinator.status.query_states import is_asked_for, query_states
from anabranch.errors import SiteError
from anabranch.plan.catalog import ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef

Status = dict[str, Any]


def system_status(
    sites: Sites,
    known: Definitions,
    protector: Protector,
    problems: Mapping[str, str],
    *,
    ask: bool = True,
) -> Status:
    """Every site with a report, or why there is none: a fresh one, or, if nobody is to be asked,
    that of its last heartbeat. `problems`: site → why it is stuck."""
    reports = _asked(sites, problems) if ask else heard(sites, problems)
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    pockets = [one for one in known.values() if isinstance(one, PocketDef)]
    protection = protector.report()
    return {
        "pid": os.getpid(),
        "states": query_states(reports, known, protection),
        "sites": [one | _missing(one, reports, known, protector) for one in reports],
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


def heard(sites: Sites, problems: Mapping[str, str]) -> list[Status]:
    """What every site said last."""
    alive = sites.alive()
    return [_heard(sites, problems, name, alive) for name in _names(sites)]


def _asked(sites: Sites, problems: Mapping[str, str]) -> list[Status]:
    names = _names(sites)
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(names)))) as pool:
        return list(pool.map(partial(_site, sites, problems), names))


def _names(sites: Sites) -> list[str]:
    return list(dict.fromkeys([*sites.names(), *sites.starting()]))


def _site(sites: Sites, problems: Mapping[str, str], name: str) -> Status:
    """Of one that does not answer: where and in which process it was last."""
    since = sites.starting().get(name)
    if since is not None:
        return _silent(sites, name, "starting", is_starting(since))
    try:
        report: Status = sites.peer(name).call("status", timeout_s=3.0)
    except SiteError as error:
        return _silent(sites, name, "unreachable", error.line())
    problem = problems.get(name, "")
    return report | {"state": "stuck" if problem else "up", "problem": problem}


def _heard(sites: Sites, problems: Mapping[str, str], name: str, alive: Collection[str]) -> Status:
    """What a site said last; a site that has said nothing for too long is gone."""
    since = sites.starting().get(name)
    if since is not None:
        return _silent(sites, name, "starting", is_starting(since))
    record = sites.record(name)
    if name not in alive or record is None or not record.report:
        return _silent(sites, name, "unreachable", "no heartbeat")
    problem = problems.get(name, "")
    return record.report | {"state": "stuck" if problem else "up", "problem": problem}


def _silent(sites: Sites, name: str, state: str, problem: str) -> Status:
    record = sites.record(name)
    last = {"address": record.address, "pid": record.pid} if record else {}
    nothing = {"tasks": [], "sources": [], "state": state, "problem": problem}
    return {"site": name, "address": "", "pid": 0} | last | nothing


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
