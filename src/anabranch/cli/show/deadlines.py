"""How queries keep their deadlines, and which task is to blame where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anabranch.link.reports import TaskReport


def deadline_lines(tasks: Sequence[TaskReport]) -> Iterator[tuple[str, bool]]:
    """A line for each query that has a deadline, and whether all is well; `tasks` are all
    primaries.
    """
    producers = {task.output: task for task in tasks if task.output}
    for task in tasks:
        deadline = task.deadline_ms
        if not deadline:
            continue
        judged, late = task.judged, task.late
        text = f"query {task.query}: due in {_ms(deadline)}"
        if task.p99_ms is not None:
            text += f", p99 {_ms(task.p99_ms)}"
        text += f", {late:,} of {judged:,} late"
        if late:
            text += f" ({late / judged:.2%})"
            if culprit := blame(task, producers):
                text += f", because of {culprit.name} at {culprit.site}"
        if task.laxity_ms is not None:
            text += f"; least laxity {_ms(min(_laxities(task, producers)))}"
        yield text, not late


def blame(last: TaskReport, producers: Mapping[str, TaskReport]) -> TaskReport | None:
    """The task on the way to `last` that delayed the most results which had come to it in time."""
    added = {
        one.name: one.overran
        - max((before.overran for before in _before(one, producers)), default=0)
        for one in _way(last, producers)
    }
    worst = max(added, key=lambda name: added[name])
    task = next(one for one in _way(last, producers) if one.name == worst)
    return task if added[worst] > 0 else None


def _laxities(last: TaskReport, producers: Mapping[str, TaskReport]) -> list[float]:
    return [one.laxity_ms for one in _way(last, producers) if one.laxity_ms is not None]


def _before(task: TaskReport, producers: Mapping[str, TaskReport]) -> list[TaskReport]:
    return [producers[name] for name in task.inputs if name in producers]


def _way(last: TaskReport, producers: Mapping[str, TaskReport]) -> list[TaskReport]:
    """`last` and all tasks upstream of it."""
    way, waiting = {last.name: last}, [last]
    while waiting:
        for task in _before(waiting.pop(), producers):
            if task.name not in way:
                way[task.name] = task
                waiting.append(task)
    return list(way.values())


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if abs(value) >= 10 else f"{value:.1f} ms"
