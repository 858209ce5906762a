"""Who protects each query, as `status` and `run` say it."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from anabranch.plan.protection import UNLIMITED

Status = dict[str, Any]


def primaries(status: Status) -> list[dict[str, Any]]:
    """The tasks that rule, each once: while one moves, the old primary may not know it yet."""
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
    """Its primary is gone, and its standby is there and about to rule."""
    found = standby_of(name, status)
    if found is None or found["error"]:
        return False
    up = {one["site"] for one in status["sites"] if one["state"] == "up"}
    gone = status["protection"][name]["site"] not in up
    return gone or found["guard"] == "claiming"


def protection_lines(status: Status) -> list[Text]:
    """A line for each query that asks for a standby, and for each part of one that has none."""
    lines = []
    for name in (*status["standbys"], *_parts(status)):
        text, well = protection_of(name, status)
        if name in status["standbys"] or not well:
            lines.append(
                Text(f"{_kind(name, status)} {name}: {text}", style="dim" if well else "yellow")
            )
    return lines


def _parts(status: Status) -> list[str]:
    """What of a protected query was moved towards its sources."""
    return [name for name in status["protection"] if _kind(name, status) == "part"]


def _kind(name: str, status: Status) -> str:
    if name in status["pockets"]:
        return "pocket"
    return "query" if name in status["reads"] else "part"


def protection_of(name: str, status: Status) -> tuple[str, bool]:
    """What to say of it, and whether that is good news."""
    ruler = status["protection"].get(name)
    standby = standby_of(name, status)
    if ruler is None or ruler["standby"] is None:
        why = (ruler or {}).get("problem") or "no standby yet"
        return f"unprotected: {why}", False
    if is_taken_over(name, status):
        return f"taking over: {ruler['standby']} after {ruler['site']}", False
    if standby is None:
        return f"unprotected: its standby {ruler['standby']} is away", False
    if standby["error"]:
        return f"unprotected: its standby failed: {standby['error']['message']}", False
    if not standby["protects"]:
        return f"unprotected: {ruler['standby']} is catching up", False
    return f"protected by {ruler['standby']}, {_batching(standby)}", True


def _batching(standby: dict[str, Any]) -> str:
    """The batch; of one that is tuned, also what it is good for."""
    why = dict.fromkeys(one["why"] for one in standby.get("tuning", ()))
    if why:
        return "; ".join(why)
    return "batch unlimited" if standby["batch"] >= UNLIMITED else f"batch {standby['batch']:,}"
