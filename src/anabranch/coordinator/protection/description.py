"""Who runs and who protects each query, in the words that every face of the system uses."""

from __future__ import annotations

from typing import Any

from anabranch.plan.protection import UNLIMITED

Status = dict[str, Any]


def primaries(status: Status) -> list[dict[str, Any]]:
    """The primaries, each task once: while one moves, the old primary may not know it yet."""
    newest: dict[str, dict[str, Any]] = {}
    for task in (task for site in status["sites"] for task in site["tasks"]):
        known = newest.get(task["name"])
        if task["role"] == "primary" and (known is None or task["epoch"] > known["epoch"]):
            newest[task["name"]] = task
    return list(newest.values())


def standby_of(name: str, status: Status) -> dict[str, Any] | None:
    """The report of the standby's task, if its site answers."""
    site = status["protection"].get(name, {}).get("standby")
    tasks = (task for one in status["sites"] if one["site"] == site for task in one["tasks"])
    return next((task for task in tasks if task["name"] == name and task.get("guard")), None)


def is_taken_over(name: str, status: Status) -> bool:
    """Its primary is gone, and its standby is there and about to take over."""
    found = standby_of(name, status)
    if found is None or found["error"]:
        return False
    up = {one["site"] for one in status["sites"] if one["state"] == "up"}
    gone = status["protection"][name]["site"] not in up
    return gone or found["guard"] == "claiming"


def protections(status: Status) -> list[tuple[str, str, bool]]:
    """What it is, what to say of it and whether that is good news: of each query that asks for a
    standby, and of each part of one that has none."""
    found = []
    for name in (*status["standbys"], *_parts(status)):
        text, well = protection_of(name, status)
        if name in status["standbys"] or not well:
            found.append((f"{_kind(name, status)} {name}", text, well))
    return found


def _parts(status: Status) -> list[str]:
    """What of a protected query was moved towards its sources."""
    return [name for name in status["protection"] if _kind(name, status) == "part"]


def _kind(name: str, status: Status) -> str:
    if name in status["pockets"]:
        return "pocket"
    return "query" if name in status["reads"] else "part"


def protection_of(name: str, status: Status) -> tuple[str, bool]:
    """What to say of it, and whether that is good news."""
    assignment = status["protection"].get(name)
    standby = standby_of(name, status)
    if assignment is None or assignment["standby"] is None:
        why = (assignment or {}).get("problem") or "no standby yet"
        return f"unprotected: {why}", False
    if is_taken_over(name, status):
        return f"taking over: {assignment['standby']} after {assignment['site']}", False
    if standby is None:
        return f"unprotected: its standby {assignment['standby']} is away", False
    if standby["error"]:
        return f"unprotected: its standby failed: {standby['error']['message']}", False
    if not standby["protects"]:
        return f"unprotected: {assignment['standby']} is catching up", False
    return f"protected by {assignment['standby']}, {_batching(standby)}", True


def _batching(standby: dict[str, Any]) -> str:
    """The batch; of one that is tuned, also what it is good for."""
    why = dict.fromkeys(one["why"] for one in standby.get("tuning", ()))
    if why:
        return "; ".join(why)
    return "batch unlimited" if standby["batch"] >= UNLIMITED else f"batch {standby['batch']:,}"
