"""Who runs and who protects each query, in the words that every face of the system uses. The
workers of an approximate query are told as one query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.coordinator.base.reports import AnySite, SystemStatus
from anabranch.link.reports import StandbyReport, TaskReport
from anabranch.plan.service_levels import UNLIMITED
from anabranch.plan.tasks import sink_task


def primaries(sites: Iterable[AnySite]) -> list[TaskReport]:
    """The primaries, each task once: while a task moves, the old primary may not know it yet."""
    newest: dict[str, TaskReport] = {}
    for task in (task for site in sites for task in site.tasks):
        known = newest.get(task.name)
        if task.role == "primary" and (known is None or task.epoch > known.epoch):
            newest[task.name] = task
    return list(newest.values())


def standby_of(name: str, status: SystemStatus) -> tuple[TaskReport, StandbyReport] | None:
    """The standby's task and its report about standing by, if its site answers."""
    assigned = status.protection.get(name)
    if assigned is None:
        return None
    for site in status.sites:
        for task in site.tasks if site.site == assigned.standby else ():
            if task.name == name and task.standby:
                return task, task.standby
    return None


def is_taken_over(name: str, status: SystemStatus) -> bool:
    """Whether its primary is gone, and its standby is there and about to take over."""
    pair = standby_of(name, status)
    if pair is None:
        return False
    task, standby = pair
    up = {one.site for one in status.sites if one.state == "up"}
    gone = status.protection[name].site not in up
    return not task.error and (gone or standby.guard == "claiming")


def protections(status: SystemStatus) -> list[tuple[str, str, bool]]:
    """For each query that asks for a standby, and each part of one without: its name, a sentence
    about its protection, and whether that is good news.
    """
    lines = []
    for name in (*status.standbys, *_parts(status)):
        text, well = protection_of(name, status)
        if name in status.standbys or not well:
            lines.append((f"{_kind(name, status)} {name}", text, well))
    return lines


def _parts(status: SystemStatus) -> list[str]:
    """The parts of a protected query that were moved towards its sources."""
    return [name for name in status.protection if _kind(name, status) == "part"]


def _kind(name: str, status: SystemStatus) -> str:
    if name in status.pockets:
        return "pocket"
    return "query" if name in status.reads else "part"


def protection_of(name: str, status: SystemStatus) -> tuple[str, bool]:
    """A sentence about its protection, and whether that is good news."""
    assigned = status.protection.get(name)
    if assigned is None or assigned.standby is None:
        why = (assigned.problem if assigned else "") or "no standby yet"
        return f"unprotected: {why}", False
    if is_taken_over(name, status):
        return f"taking over: {assigned.standby} after {assigned.site}", False
    pair = standby_of(name, status)
    if pair is None:
        return f"unprotected: its standby {assigned.standby} is away", False
    task, standby = pair
    if task.error:
        return f"unprotected: its standby failed: {task.error.message}", False
    if not standby.protects:
        return f"unprotected: {assigned.standby} is catching up", False
    return f"protected by {assigned.standby}, {_batching(standby)}", True


def _batching(standby: StandbyReport) -> str:
    """The batch; if it is tuned, also what it promises."""
    why = dict.fromkeys(one.why for one in standby.tuning)
    if why:
        return "; ".join(why)
    return "batch unlimited" if standby.batch >= UNLIMITED else f"batch {standby.batch:,}"


Pair = tuple[TaskReport | None, TaskReport | None]


def task_and_sink(
    name: str, workers: Mapping[str, Sequence[str]], tasks: Iterable[TaskReport]
) -> Pair:
    """The task and the sink of the query `name`, from all primaries. The workers of an approximate
    query are one task, their sinks another.
    """
    by_name = {one.name: one for one in tasks}
    if name not in workers:
        return by_name.get(name), by_name.get(sink_task(name))
    own = [by_name[one] for one in workers[name] if one in by_name]
    sinks = [by_name[sink] for one in workers[name] if (sink := sink_task(one)) in by_name]
    return _as_one(name, own), _as_one(name, sinks)


def _as_one(name: str, parts: list[TaskReport]) -> TaskReport | None:
    """The parts as one task. Figures are added up; of latencies the worst counts, of errors the
    first.
    """
    if not parts:
        return None
    return replace(
        next((one for one in parts if one.error), parts[0]),
        name=name,
        query=name,
        site=", ".join(dict.fromkeys(one.site for one in parts)),
        queue=sum(one.queue for one in parts),
        position=sum(one.position for one in parts),
        rows_in=sum(one.rows_in for one in parts),
        rows_out=sum(one.rows_out for one in parts),
        rate_in=sum(one.rate_in for one in parts),
        rate_out=sum(one.rate_out for one in parts),
        p50_ms=max((one.p50_ms for one in parts if one.p50_ms is not None), default=None),
        p99_ms=max((one.p99_ms for one in parts if one.p99_ms is not None), default=None),
    )
