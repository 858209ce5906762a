"""From the status that a coordinator puts together to one typed moment of the system. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from typing import Any

from anabranch.coordinator.placement.monitor import load_of
from anabranch.coordinator.protection.description import primaries
from anabranch.coordinator.status.query_news import without_name
from anabranch.coordinator.status.workers import task_and_sink
from anabranch.errors import from_dict
from anabranch.face.model import LinkView, QueryView, SiteView, Snapshot, StreamView, TaskView
from anabranch.face.promises import (
    deadline_view,
    estimates_view,
    placed_view,
    protection_view,
    taken_view,
)

Status = dict[str, Any]
_COUNTS = ("late", "skipped", "shed")
_LONG_WAIT_S = 1.0


def snapshot(status: Status, at: float) -> Snapshot:
    parts = {part: name for name, found in status.get("workers", {}).items() for part in found}
    tasks = tuple(_task(one, parts) for one in primaries(status))
    sources = [one for site in status["sites"] for one in site["sources"]]
    endings = status.get("endings", {})
    return Snapshot(
        at=at,
        sites=tuple(_site(one, tasks, endings.get(one["site"], "")) for one in status["sites"]),
        links=_links(tasks, sources, _round_trips(status)),
        streams=tuple(_stream(one, status["tables"]) for one in sources),
        queries=tuple(_queries(status, tasks)),
        tasks=tasks,
        bottleneck=_bottleneck(tasks),
    )


def _error(report: Status) -> str:
    if report.get("error"):
        return from_dict(report["error"]).line()
    return str(report.get("problem") or "")


def _source_error(report: Status, what: str) -> str:
    error = report.get("error")
    return without_name(error, what) if error else str(report.get("problem") or "")


def _task(one: Status, parts: Mapping[str, str]) -> TaskView:
    """`parts`: worker → the query that its user knows."""
    kept = {key: one[key] for key in TaskView.model_fields if key in one}
    made = {"error": _error(one), "load": load_of(one), "inputs": tuple(one.get("inputs", ())),
            "query": parts.get(one["query"], one["query"])}  # fmt: skip
    return TaskView(**(kept | made))


def _site(one: Status, tasks: Iterable[TaskView], ending: str) -> SiteView:
    load = sum(task.load for task in tasks if task.site == one["site"])
    return SiteView(name=one["site"], address=one["address"], pid=one["pid"], state=one["state"],
                    problem=one["problem"], load=load, ending=ending,
                    http=one.get("http") or "")  # fmt: skip


def _stream(one: Status, tables: Container[str]) -> StreamView:
    kind = "table" if one["stream"] in tables else "stream"
    left_out = {key: one[key] for key in _COUNTS if one.get(key)}
    return StreamView(name=one["stream"], site=one["site"], state=one["state"],
                      error=_source_error(one, f"{kind} {one['stream']}"),
                      rows=one["rows"], rate=one["rate"], left_out=left_out, kind=kind,
                      failed_at=one.get("failed_at"))  # fmt: skip


def _round_trips(status: Status) -> dict[tuple[str, str], float]:
    return {(one["site"], other): 1e3 * seconds for one in status["sites"]
            for other, seconds in one.get("round_trips", {}).items()}  # fmt: skip


def _links(
    tasks: Iterable[TaskView], sources: Iterable[Status], trips: dict[tuple[str, str], float]
) -> tuple[LinkView, ...]:
    """Task and source outputs that are read at another site than where they are made."""
    tasks = tuple(tasks)
    made = {one["stream"]: (one["site"], one["rate"]) for one in sources}
    made |= {one.output: (one.site, one.rate_out) for one in tasks if one.output}
    flows: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    queues: dict[tuple[str, str], int] = defaultdict(int)
    for task in tasks:
        for stream in task.inputs:
            sender, rate = made.get(stream, (task.site, 0.0))
            if sender != task.site:
                flows[sender, task.site][stream] = rate
                queues[sender, task.site] += task.queue
    return tuple(
        LinkView(sender=sender, receiver=receiver, streams=tuple(sorted(streams)),
                 rate=sum(streams.values()), queue=queues[sender, receiver],
                 round_trip_ms=trips.get((sender, receiver)))
        for (sender, receiver), streams in sorted(flows.items())
    )  # fmt: skip


def _bottleneck(tasks: Iterable[TaskView]) -> str:
    """Whose queue would take it longest to work off."""
    waits = {task.name: task.queue / max(task.rate_in, 1.0) for task in tasks}
    worst = max(waits, key=waits.__getitem__, default="")
    return worst if worst and waits[worst] > _LONG_WAIT_S else ""


def _queries(status: Status, tasks: Iterable[TaskView]) -> Iterable[QueryView]:
    tasks = tuple(tasks)
    raw = {one["name"]: one for one in primaries(status)}
    stages = {one["stream"]: one["stage"] for site in status["sites"] for one in site["sources"]
              if one.get("stage")}  # fmt: skip
    for name, found in status["states"].items():
        task, sink = task_and_sink(name, status, list(raw.values()))
        errors = (_error(one) for one in (task, sink) if one)
        error = next((one for one in errors if one), found["reason"])
        yield QueryView(
            name=name,
            kind="pocket" if name in status["pockets"] else "query",
            state=found["state"],
            error=error,
            reads=tuple(status["reads"].get(name) or status["ends"].get(name, ())),
            protection=protection_view(name, status),
            taken=taken_view(task),
            deadline=deadline_view(name, raw),
            placed=placed_view(name, tasks, status),
            estimates=estimates_view(name, status),
            stage=stages.get(f"{name}.stage"),
            home=status.get("homes", {}).get(name, ""),
            run=status.get("runs", {}).get(name, ""),
            plans=str(raw.get(name, {}).get("plans") or ""),
            **_figures(task, sink),
        )


def _figures(task: Status | None, sink: Status | None) -> dict[str, Any]:
    """Of the query's own task; its latency is that of its last."""
    if task is None:
        return {"site": "", "rate_in": 0.0, "rate_out": 0.0, "rows_out": 0, "queue": 0,
                "p50_ms": None, "p99_ms": None}  # fmt: skip
    last = sink or task
    own = {key: task[key] for key in ("site", "rate_in", "rate_out")}
    own["rows_out"] = task["position"]  # of all its lives: positions are dense
    waiting = task["queue"] + (sink["queue"] if sink else 0)
    return own | {"queue": waiting, "p50_ms": last["p50_ms"], "p99_ms": last["p99_ms"]}
