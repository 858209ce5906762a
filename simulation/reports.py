"""Reports as sites would give them, for what is simulated and tested: whoever makes one says what
matters, and the rest is as of something that has just begun and does well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.coordinator.base.reports import (
    AnySite,
    ProtectionReport,
    SilentSite,
    SiteStatus,
    SystemStatus,
)
from anabranch.link.message import PROTOCOL
from anabranch.link.reports import (
    Noticed,
    SiteReport,
    SourceReport,
    StandbyReport,
    TaskReport,
    TuningReport,
)
from anabranch.standby.cost import Load

LOAD = Load(100.0, 0.25, 0.02, 0.0, 32.0, 1.0, None, 0.002, 0.5, 0.004, 1e-5)
SITE_STATUS = ("state", "held", "missing", "lost", "ghosts")
"""What a coordinator adds to the report of a site."""


def a_task(name: str, site: str = "room1", role: str = "primary", **said: Any) -> TaskReport:
    """`q/sink` is the sink of q."""
    query, _, sink = name.partition("/")
    usual: dict[str, Any] = {
        "query": query,
        "inputs": (),
        "output": None if sink else name,
        "state": "running",
        "epoch": 0,
        "error": None,
        "cut_off": False,
        "sink": "jsonl" if sink else None,
        "queue": 0,
        "position": 0,
        "watermark": None,
        "plans": (),
        "pocket": None,
        "instances": 0,
        "rows_in": 0,
        "rows_out": 0,
        "rate_in": 0.0,
        "rate_out": 0.0,
        "fixed_ms": 0.0,
        "per_tuple_us": 0.0,
        "p50_ms": None,
        "p99_ms": None,
        "deadline_ms": None,
        "sub_deadline_ms": None,
        "laxity_ms": None,
        "judged": 0,
        "late": 0,
        "overran": 0,
        "away": None,
        "problem": "",
        "breaks": 0,
    }
    return TaskReport(name=name, site=site, role=role, **(usual | said))


def guarding(primary: str = "room1", **said: Any) -> StandbyReport:
    """What a task says of itself that stands by for one at `primary`."""
    usual: dict[str, Any] = {
        "guard": "standby",
        "protects": True,
        "batch": 100,
        "tuning": (),
        "codec": None,
        "noticed": Noticed(0.5, 2.0),
        "kept_inputs": 0,
        "jumps": 0,
        "received": (0,),
        "beaten": 0.0,
        "timeline": {},
        "asked": False,
    }
    return StandbyReport(primary=primary, **(usual | said))


def tuned(**said: Any) -> TuningReport:
    """One input of a standby, whose batch keeps both limits."""
    usual: dict[str, Any] = {
        "stream": "s",
        "batch": 100,
        "why": "batch 100 keeps both limits",
        "measured": True,
        "broken": (),
        "overhead": 0.4,
        "recovery_s": 0.6,
        "worst_recovery_s": 0.8,
        "process_s": 0.5,
        "machine_s": 0.8,
        "load": LOAD,
    }
    return TuningReport(**(usual | said))


def a_source(stream: str, site: str = "room1", **said: Any) -> SourceReport:
    usual: dict[str, Any] = {
        "state": "running",
        "finite": False,
        "error": None,
        "failed_at": None,
        "problem": "",
        "rows": 0,
        "newest": None,
        "late": 0,
        "skipped": 0,
        "shed": 0,
        "replayed": 0,
        "to_replay": 0,
        "rate": 0.0,
    }
    return SourceReport(stream=stream, site=site, **(usual | said))


def a_site(site: str, *parts: TaskReport | SourceReport, **said: Any) -> SiteReport:
    """A site with these tasks and sources."""
    usual: dict[str, Any] = {
        "producers": {},
        "troubles": (),
        "kept": {},
        "consumers": {},
        "traffic": {},
        "protocol": PROTOCOL,
        "version": "0.1.0",
        "address": "127.0.0.1:7101",
        "http": None,
        "problem": "",
        "abandoned": 0,
        "pid": 1,
        "round_trips": {},
        "folder": None,
        "tasks": tuple(one for one in parts if isinstance(one, TaskReport)),
        "sources": tuple(one for one in parts if isinstance(one, SourceReport)),
    }
    return SiteReport(site=site, **(usual | said))


def up(site: str, *parts: TaskReport | SourceReport, **said: Any) -> SiteStatus:
    """A site that answers, as the coordinator tells of it."""
    usual: dict[str, Any] = {"state": "up", "held": {}}
    own = {key: said.pop(key) for key in SITE_STATUS if key in said}
    return replace(SiteStatus.of(a_site(site, *parts, **said)), **(usual | own))


def silent(site: str, state: str = "unreachable", **said: Any) -> SilentSite:
    usual: dict[str, Any] = {
        "address": "127.0.0.1:7101",
        "pid": 1,
        "problem": f"{site} is {state}",
        "held": {},
    }
    return SilentSite(site=site, state=state, **(usual | said))


def assigned(site: str, standby: str | None = None, **said: Any) -> ProtectionReport:
    """A task that runs at `site`."""
    usual: dict[str, Any] = {
        "epoch": 0,
        "claim": 1,
        "stream": "q",
        "problem": "",
        "protected": bool(standby),
    }
    return ProtectionReport(site=site, standby=standby, **(usual | said))


def a_status(*sites: AnySite, **said: Any) -> SystemStatus:
    usual: dict[str, Any] = {
        "address": "127.0.0.1:7100",
        "placement": {},
        "deadlines": "",
        "approximations": {},
        "endings": {},
        "troubles": (),
        "pid": 2,
        "states": {},
        "homes": {},
        "runs": {},
        "streams": (),
        "tables": (),
        "pockets": (),
        "protection": {},
        "standbys": {},
        "reads": {},
        "workers": {},
        "ends": {},
    }
    return SystemStatus(sites=sites, **(usual | said))
