"""What a coordinator says of the whole system: every site's report and what is amiss."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from anabranch.coordinator.deploy import Definitions, tasks
from anabranch.coordinator.protect import Protector
from anabranch.coordinator.sites import Sites
from anabranch.errors import SiteError
from anabranch.plan.catalog import PocketDef, QueryDef, StreamDef, TableDef

Status = dict[str, Any]


def system_status(
    sites: Sites, known: Definitions, protector: Protector, problems: Mapping[str, str]
) -> Status:
    """Every site with a fresh report, or why there is none. `problems`: site → why it is stuck."""
    names = sites.names()
    with ThreadPoolExecutor(max_workers=max(1, min(16, len(names)))) as pool:
        reports = list(pool.map(partial(_site, sites, problems), names))
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    pockets = [one for one in known.values() if isinstance(one, PocketDef)]
    return {
        "pid": os.getpid(),
        "sites": [one | _missing(one, reports, known, protector) for one in reports],
        "streams": [one.name for one in known.values() if isinstance(one, StreamDef)],
        "tables": [one.name for one in known.values() if isinstance(one, TableDef)],
        "pockets": [one.name for one in pockets],
        "protection": protector.report(),
        "standbys": {
            one.name: str(one.standby)
            for one in known.values()
            if isinstance(one, QueryDef | PocketDef) and one.standby
        },
        "reads": {query.name: query.reads for query in queries},
        "ends": {query.name: query.ends_with for query in queries}
        | {one.output: one.reads for one in pockets}
        | {one.name: one.reads for one in pockets},
    }


def _site(sites: Sites, problems: Mapping[str, str], name: str) -> Status:
    """Of one that does not answer: where and in which process it was last."""
    try:
        report: Status = sites.peer(name).call("status", timeout_s=3.0)
    except SiteError as error:
        record = sites.record(name)
        last = {"address": record.address, "pid": record.pid} if record else {}
        nothing = {"tasks": [], "sources": [], "state": "unreachable", "problem": error.line()}
        return {"site": name, "address": "", "pid": 0} | last | nothing
    problem = problems.get(name, "")
    return report | {"state": "stuck" if problem else "up", "problem": problem}


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
