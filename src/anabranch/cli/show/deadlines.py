"""How queries do against their deadlines, and which task is to blame where they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Task = Mapping[str, Any]


def deadline_lines(tasks: Sequence[Task]) -> Iterator[tuple[str, bool]]:
    """One line a query that has a deadline, and whether all is well; `tasks` are all primaries."""
    made = {task["output"]: task for task in tasks if task.get("output")}
    for task in tasks:
        deadline = task.get("deadline_ms")
        if not deadline:
            continue
        judged, late = task["judged"], task["late"]
        text = f"query {task['query']}: due in {_ms(deadline)}"
        if task["p99_ms"] is not None:
            text += f", p99 {_ms(task['p99_ms'])}"
        text += f", {late:,} of {judged:,} late"
        if late:
            text += f" ({late / judged:.2%})"
            if culprit := blame(task, made):
                text += f", because of {culprit['name']} at {culprit['site']}"
        if task.get("laxity_ms") is not None:
            text += f"; least laxity {_ms(min(_laxities(task, made)))}"
        yield text, not late


def blame(last: Task, made: Mapping[str, Task]) -> Task | None:
    """The task on the way to `last` that made the most results late that came to it in time."""
    added = {
        one["name"]: one["overran"] - max((before["overran"] for before in _before(one, made)),
                                          default=0)
        for one in _way(last, made)
    }  # fmt: skip
    worst = max(added, key=lambda name: added[name])
    found = next(one for one in _way(last, made) if one["name"] == worst)
    return found if added[worst] > 0 else None


def _laxities(last: Task, made: Mapping[str, Task]) -> list[float]:
    return [one["laxity_ms"] for one in _way(last, made) if one.get("laxity_ms") is not None]


def _before(task: Task, made: Mapping[str, Task]) -> list[Task]:
    return [made[name] for name in task.get("inputs", ()) if name in made]


def _way(last: Task, made: Mapping[str, Task]) -> list[Task]:
    """`last` and all tasks upstream of it."""
    found, waiting = {last["name"]: last}, [last]
    while waiting:
        for one in _before(waiting.pop(), made):
            if one["name"] not in found:
                found[one["name"]] = one
                waiting.append(one)
    return list(found.values())


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if abs(value) >= 10 else f"{value:.1f} ms"
