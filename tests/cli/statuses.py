"""The status of a small system: `q`, which asks for a standby, is at `centre`; `centre2` stands by.
What a test does not say is as of a system that does well."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from anabranch.coordinator.base.reports import (
    AnySite,
    ProtectionReport,
    QueryState,
    SilentSite,
    SystemStatus,
)
from anabranch.link.reports import SourceReport, StandbyReport, TaskReport
from simulation import reports

_OF_STANDBYS = {one.name for one in fields(StandbyReport)}


def task(name: str, site: str, role: str = "primary", **said: Any) -> TaskReport:
    """One that has worked. What only one says that stands by, or has done so, goes there."""
    standing_by = {key: said.pop(key) for key in _OF_STANDBYS & said.keys()}
    measured = {
        "rate_in": 5.0,
        "rate_out": 5.0,
        "rows_in": 10,
        "rows_out": 4,
        "position": 10,
        "fixed_ms": 1.0,
        "per_tuple_us": 2.0,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
    }
    if standing_by:
        said["standby"] = reports.guarding(**{"primary": "centre"} | standing_by)
    return reports.a_task(name, site, role, **measured | said)


def standby(name: str, site: str, **said: Any) -> TaskReport:
    return task(name, site, "standby", **{"guard": "standby"} | said)


def site(name: str, *parts: TaskReport | SourceReport, **said: Any) -> AnySite:
    """One that is `starting` or `unreachable` says nothing."""
    kind = reports.silent if said.get("state") in ("starting", "unreachable") else reports.up
    return kind(name, *parts, **{"pid": 4} | said)


def down(name: str, *missing: str, lost: tuple[str, ...] = (), pid: int = 4) -> SilentSite:
    return reports.silent(name, missing=missing, lost=lost, pid=pid)


def states(**found: str) -> dict[str, QueryState]:
    """Query → its state, and after a colon the reason."""
    return {name: QueryState(*text.split(": ", 1)) for name, text in found.items()}


def assigned(site: str, standby: str | None, problem: str = "") -> dict[str, ProtectionReport]:
    """The `protection` in which `q` runs at `site`."""
    return {"q": reports.assigned(site, standby, epoch=1, claim=2, problem=problem)}


def status(*sites: AnySite, **said: Any) -> SystemStatus:
    usual = {
        "streams": ("s",),
        "protection": {"q": reports.assigned("centre", "centre2")},
        "standbys": {"q": "STANDBY"},
        "reads": {"q": ("s",)},
        "ends": {"q": ("s",)},
        "states": states(q="running"),
    }
    return reports.a_status(*sites, **usual | said)
