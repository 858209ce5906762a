"""The workers of an approximate query, told as the one query that they are to its user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.plan.tasks import sink_task

Status = dict[str, Any]
Pair = tuple[Status | None, Status | None]
_SUMS = ("queue", "position", "rows_in", "rows_out", "rate_in", "rate_out")
_WORST = ("p50_ms", "p99_ms")


def task_and_sink(name: str, status: Status, tasks: Sequence[Status]) -> Pair:
    """Of the query `name`, from all primaries. The workers of an approximate query are one task,
    their sinks another."""
    by_name = {one["name"]: one for one in tasks}
    workers = status.get("workers", {}).get(name)
    if workers is None:
        return by_name.get(name), by_name.get(sink_task(name))
    own, sinks = workers, [sink_task(one) for one in workers]
    return (_as_one(name, [by_name[one] for one in own if one in by_name]),
            _as_one(name, [by_name[one] for one in sinks if one in by_name]))  # fmt: skip


def _as_one(name: str, parts: list[Status]) -> Status | None:
    """Figures are added up; of latencies the worst counts, of errors the first."""
    if not parts:
        return None
    first = next((one for one in parts if one["error"]), parts[0])
    sums = {key: sum(one[key] for one in parts) for key in _SUMS if key in first}
    worst = {key: max((one[key] for one in parts if one[key] is not None), default=None)
             for key in _WORST}  # fmt: skip
    sites = ", ".join(dict.fromkeys(one["site"] for one in parts))
    return first | sums | worst | {"name": name, "query": name, "site": sites}
