"""The workers of an approximate query, told as the one query that they are to its user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anabranch.link.reports import TaskReport
from anabranch.plan.tasks import sink_task

Pair = tuple[TaskReport | None, TaskReport | None]


def task_and_sink(
    name: str, workers: Mapping[str, Sequence[str]], tasks: Iterable[TaskReport]
) -> Pair:
    """Of the query `name`, from all primaries. The workers of an approximate query are one task,
    their sinks another."""
    by_name = {one.name: one for one in tasks}
    if name not in workers:
        return by_name.get(name), by_name.get(sink_task(name))
    own = [by_name[one] for one in workers[name] if one in by_name]
    sinks = [by_name[sink] for one in workers[name] if (sink := sink_task(one)) in by_name]
    return _as_one(name, own), _as_one(name, sinks)


def _as_one(name: str, parts: list[TaskReport]) -> TaskReport | None:
    """Figures are added up; of latencies the worst counts, of errors the first."""
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
