"""Statuses as a coordinator gives them, as far as the command line looks at them."""

from __future__ import annotations

from typing import Any


def task(
    name: str, site: str, role: str = "primary", *, epoch: int = 0, **more: Any
) -> dict[str, Any]:
    measured = {"rate_in": 5.0, "rate_out": 5.0, "rows_out": 4, "position": 10, "queue": 0}
    return {
        "name": name, "query": name.partition("/")[0], "site": site, "role": role, "epoch": epoch,
        "state": "running", "error": None, "sink": "jsonl" if "/" in name else None,
        "p50_ms": 1.0, "p99_ms": 2.0, "problem": "", "pocket": None, **measured, **more,
    }  # fmt: skip


def standby(name: str, site: str, *, protects: bool = True, **more: Any) -> dict[str, Any]:
    guard: dict[str, Any] = {"guard": "standby", "protects": protects, "batch": 100, "tuning": []}
    return task(name, site, "standby", **guard | more)


def site(name: str, *tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "site": name, "address": "127.0.0.1:7101", "pid": 4, "state": "up", "problem": "",
        "missing": [], "lost": [], "sources": [], "tasks": list(tasks), **more,
    }  # fmt: skip


def down(name: str, *missing: str, lost: tuple[str, ...] = ()) -> dict[str, Any]:
    away = {"state": "unreachable", "problem": f"{name} is unreachable"}
    return site(name, missing=list(missing), lost=list(lost), **away)


def status(*sites: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`q`, which asks for a standby, is at `centre`; `centre2` stands by."""
    assignment = {"site": "centre", "epoch": 0, "standby": "centre2", "claim": 1, "problem": "",
             "protected": True}  # fmt: skip
    return {
        "address": "127.0.0.1:7100", "pid": 2, "sites": list(sites), "streams": ["s"],
        "tables": [], "pockets": [], "protection": {"q": assignment}, "standbys": {"q": "STANDBY"},
        "reads": {"q": ["s"]}, "ends": {"q": ["s"]},
        "states": {"q": {"state": "running", "reason": ""}}, **more,
    }  # fmt: skip


def assigned(site: str, standby: str | None, problem: str = "") -> dict[str, Any]:
    """The `protection` in which `q` runs at `site`."""
    return {"q": {"site": site, "epoch": 1, "standby": standby, "claim": 2, "problem": problem,
                  "protected": standby is not None}}  # fmt: skip
