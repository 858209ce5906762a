"""Builds one typed moment of the system from the status that a coordinator puts together, and the
changes between two moments. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

from anabranch.coordinator.base.reports import AnySite, SystemStatus
from anabranch.coordinator.placement.monitor import load_of
from anabranch.coordinator.status.description import primaries, task_and_sink
from anabranch.coordinator.status.news import without_name
from anabranch.face.model import LinkView, QueryView, SiteView, Snapshot, StreamView, TaskView
from anabranch.face.promises import (
    deadline_view,
    estimates_view,
    placed_view,
    protection_view,
    taken_view,
)
from anabranch.link.message import plain
from anabranch.link.reports import SourceReport, TaskReport

_LONG_WAIT_S = 1.0


def snapshot(status: SystemStatus, at: float) -> Snapshot:
    parts = {part: name for name, found in status.workers.items() for part in found}
    tasks = tuple(_task(one, parts) for one in primaries(status.sites))
    sources = list(status.sources())
    return Snapshot(
        at=at,
        sites=tuple(_site(one, tasks, status.endings.get(one.site, "")) for one in status.sites),
        links=_links(tasks, sources, _round_trips(status)),
        streams=tuple(_stream(one, status.tables) for one in sources),
        queries=tuple(_queries(status, tasks)),
        tasks=tasks,
        bottleneck=_bottleneck(tasks),
    )


def _error(report: TaskReport) -> str:
    return report.error.line() if report.error else report.problem


def _source_error(report: SourceReport, what: str) -> str:
    return without_name(report.error, what) if report.error else report.problem


def _task(task: TaskReport, parts: Mapping[str, str]) -> TaskView:
    """The view of a task. `parts` maps each worker to the query that its user knows."""
    return TaskView(
        name=task.name,
        query=parts.get(task.query, task.query),
        site=task.site,
        output=task.output,
        inputs=task.inputs,
        sink=task.sink,
        state=task.state,
        error=_error(task),
        epoch=task.epoch,
        queue=task.queue,
        rows_in=task.rows_in,
        rows_out=task.rows_out,
        rate_in=task.rate_in,
        rate_out=task.rate_out,
        p50_ms=task.p50_ms,
        p99_ms=task.p99_ms,
        load=load_of(task),
    )


def _site(site: AnySite, tasks: Iterable[TaskView], ending: str) -> SiteView:
    load = sum(task.load for task in tasks if task.site == site.site)
    return SiteView(
        name=site.site,
        address=site.address,
        pid=site.pid,
        state=site.state,
        problem=site.problem,
        load=load,
        ending=ending,
        http=site.http or "",
    )


def _stream(source: SourceReport, tables: Container[str]) -> StreamView:
    kind = "table" if source.stream in tables else "stream"
    return StreamView(
        name=source.stream,
        site=source.site,
        state=source.state,
        error=_source_error(source, f"{kind} {source.stream}"),
        rows=source.rows,
        rate=source.rate,
        left_out=source.left_out,
        kind=kind,
        failed_at=source.failed_at,
    )


def _round_trips(status: SystemStatus) -> dict[tuple[str, str], float]:
    return {
        (one.site, other): 1e3 * seconds
        for one in status.sites
        for other, seconds in one.round_trips.items()
    }


def _links(
    tasks: Iterable[TaskView],
    sources: Iterable[SourceReport],
    trips: dict[tuple[str, str], float],
) -> tuple[LinkView, ...]:
    """Outputs of tasks and sources that are read at another site than where they are computed."""
    tasks = tuple(tasks)
    producers = {one.stream: (one.site, one.rate) for one in sources}
    producers |= {one.output: (one.site, one.rate_out) for one in tasks if one.output}
    flows: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    queues: dict[tuple[str, str], int] = defaultdict(int)
    for task in tasks:
        for stream in task.inputs:
            sender, rate = producers.get(stream, (task.site, 0.0))
            if sender != task.site:
                flows[sender, task.site][stream] = rate
                queues[sender, task.site] += task.queue
    return tuple(
        LinkView(
            sender=sender,
            receiver=receiver,
            streams=tuple(sorted(streams)),
            rate=sum(streams.values()),
            queue=queues[sender, receiver],
            round_trip_ms=trips.get((sender, receiver)),
        )
        for (sender, receiver), streams in sorted(flows.items())
    )


def _bottleneck(tasks: Iterable[TaskView]) -> str:
    """The task whose queue would take longest to work off."""
    waits = {task.name: task.queue / max(task.rate_in, 1.0) for task in tasks}
    worst = max(waits, key=waits.__getitem__, default="")
    return worst if worst and waits[worst] > _LONG_WAIT_S else ""


def _queries(status: SystemStatus, tasks: Iterable[TaskView]) -> Iterable[QueryView]:
    tasks = tuple(tasks)
    raw = {one.name: one for one in primaries(status.sites)}
    stages = {one.stream: one.stage for one in status.sources() if one.stage}
    for name, state in status.states.items():
        task, sink = task_and_sink(name, status.workers, raw.values())
        errors = (_error(one) for one in (task, sink) if one)
        last = sink or task
        yield QueryView(
            name=name,
            kind="pocket" if name in status.pockets else "query",
            state=state.state,
            error=next((one for one in errors if one), state.reason),
            reads=status.reads.get(name) or status.ends.get(name, ()),
            protection=protection_view(name, status),
            taken=taken_view(task),
            deadline=deadline_view(name, raw),
            placed=placed_view(name, tasks, status),
            estimates=estimates_view(name, status),
            stage=stages.get(f"{name}.stage"),
            home=status.homes.get(name, ""),
            run=status.runs.get(name, ""),
            plans=_plans(raw.get(name)),
            site=task.site if task else "",
            rate_in=task.rate_in if task else 0.0,
            rate_out=task.rate_out if task else 0.0,
            rows_out=task.position if task else 0,  # of all its lives: positions are dense
            queue=sum(one.queue for one in (task, sink) if one) if task else 0,
            p50_ms=last.p50_ms if last and task else None,
            p99_ms=last.p99_ms if last and task else None,
        )


def _plans(task: TaskReport | None) -> str:
    return str(plain(task.plans)) if task and task.plans else ""


Json = dict[str, Any]


def delta(before: Json, after: Json) -> Json:
    """Lists of named things are cut down to new and changed entries and the names of those that are
    `gone`; all else to what has changed. `patched(before, delta(before, after)) == after`, but for
    the order of lists.
    """
    changed: Json = {}
    for key, value in after.items():
        old = before.get(key)
        if old is not None and _named(value) and _named(old):
            part = _list_delta(old, value)
            if part:
                changed[key] = part
        elif value != old:
            changed[key] = value
    return changed


def patched(before: Json, change: Json) -> Json:
    after = dict(before)
    for key, value in change.items():
        if isinstance(value, dict) and "changed" in value and "gone" in value:
            known = {_key(one): one for one in before.get(key) or ()}
            for gone in value["gone"]:
                known.pop(tuple(gone), None)
            known |= {_key(one): one for one in value["changed"]}
            after[key] = list(known.values())
        else:
            after[key] = value
    return after


def _named(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, dict) for one in value)


def _list_delta(before: list[Json], after: list[Json]) -> Json:
    old = {_key(one): one for one in before}
    changed = [one for one in after if old.get(_key(one)) != one]
    gone = [list(key) for key in old.keys() - {_key(one) for one in after}]
    return {"changed": changed, "gone": sorted(gone)} if changed or gone else {}


def _key(entry: Json) -> tuple[str, ...]:
    """What identifies an entry: its ends for a link, its name for everything else."""
    if "sender" in entry:
        return str(entry["sender"]), str(entry["receiver"])
    return (str(entry["name"]),)
