"""How a query keeps what its clauses promise: protection, deadline, placement, estimates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.status.description import protection_of, standby_of
from anabranch.face.model import (
    DeadlineView,
    EstimatesView,
    PlacedView,
    ProtectionView,
    QueryView,
    StepView,
    TakenView,
    TaskView,
    WorkerView,
)
from anabranch.link.reports import TaskReport
from anabranch.plan.service_levels import UNLIMITED

Line = tuple[str, str, bool]
"""What it is about, what to say of it, and whether that is good news."""


def protection_view(name: str, status: SystemStatus) -> ProtectionView | None:
    assigned = status.protection.get(name)
    if assigned is None or name not in status.standbys:
        return None
    text, well = protection_of(name, status)
    _, standby = standby_of(name, status) or (None, None)
    tuned = standby.tuning if standby else ()
    batch = standby.batch if standby and standby.batch < UNLIMITED else None
    return ProtectionView(
        site=assigned.site,
        standby=assigned.standby,
        epoch=assigned.epoch,
        protected=well,
        text=text,
        asked=status.standbys[name],
        batch=batch,
        overhead=max((one.overhead for one in tuned), default=None),
        recovery_s=max((one.recovery_s for one in tuned), default=None),
    )


def taken_view(task: TaskReport | None) -> TakenView | None:
    """How the task that runs now took over, if it was a standby before; else None."""
    before = task.standby if task else None
    if task is None or before is None or not before.timeline:
        return None
    when = before.timeline
    return TakenView(
        was_at=before.primary,
        epoch=task.epoch,
        asked=before.asked,
        noticed=when.get("noticed"),
        claimed=when.get("claimed"),
        recovered=when.get("recovered"),
    )


def deadline_view(name: str, raw: Mapping[str, TaskReport]) -> DeadlineView | None:
    """The deadline and how it is kept. `raw` are all primaries by name; a query's last task judges
    its results.
    """
    last = next((one for one in raw.values() if one.query == name and one.deadline_ms), None)
    if last is None or last.deadline_ms is None:
        return None
    steps = tuple(
        StepView(
            task=one.name,
            site=one.site,
            sub_deadline_ms=one.sub_deadline_ms,
            laxity_ms=one.laxity_ms,
        )
        for one in _way(last, raw)
        if one.sub_deadline_ms is not None
    )
    return DeadlineView(
        deadline_ms=last.deadline_ms, judged=last.judged, late=last.late, steps=steps
    )


def _way(last: TaskReport, raw: Mapping[str, TaskReport]) -> list[TaskReport]:
    """All tasks up to `last`, those furthest upstream first."""
    producers = {one.output: one for one in raw.values() if one.output}
    way, waiting = [last], [last]
    while waiting:
        for stream in waiting.pop(0).inputs:
            if stream in producers and producers[stream] not in way:
                way.append(producers[stream])
                waiting.append(producers[stream])
    return way[::-1]


def placed_view(
    name: str, tasks: Iterable[TaskView], status: SystemStatus
) -> tuple[PlacedView, ...]:
    """Why the system has put each of the query's tasks where it is; empty where AT has decided
    it.
    """
    reasons = status.placement
    own = [one for one in tasks if one.query == name and not one.sink and one.name in reasons]
    return tuple(
        PlacedView(task=one.name, site=one.site, why=reasons[one.name].text) for one in own
    )


def estimates_view(name: str, status: SystemStatus) -> EstimatesView | None:
    report = status.approximations.get(name)
    if report is None:
        return None
    workers = tuple(
        WorkerView(
            query=one.query,
            site=one.site,
            keys=one.keys,
            bound=one.bound,
            protection=one.protection,
            why=one.why,
            damaged=one.damaged,
        )
        for one in report.workers
    )
    return EstimatesView(
        within=report.within,
        confidence=report.confidence,
        estimated=report.estimated,
        recovering=report.recovering,
        workers=workers,
        problem=report.problem,
    )


def told(query: QueryView) -> list[Line]:
    """A sentence for each promise that the query asks for."""
    lines = [_deadline(query), _protection(query), _stage(query), _estimates(query)]
    return [line for line in lines if line]


def _deadline(query: QueryView) -> Line | None:
    due = query.deadline
    if due is None:
        return None
    share = f" ({due.late / due.judged:.2%})" if due.late else ""
    text = f"due in {due.deadline_ms:,.0f} ms: {due.late:,} of {due.judged:,} late{share}"
    left = [one.laxity_ms for one in due.steps if one.laxity_ms is not None]
    if left:
        text += f"; least laxity {min(left):,.0f} ms"
    return "deadline", text, not due.late


def _protection(query: QueryView) -> Line | None:
    kept = query.protection
    if kept is None:
        return None
    text = f"{kept.asked}: {kept.text}"
    if kept.recovery_s is not None and kept.overhead is not None:
        text += f"; recovery {kept.recovery_s:.2f} s, overhead {kept.overhead:.0%} expected"
    return "protection", text, kept.protected


def _stage(query: QueryView) -> Line | None:
    state = query.stage
    if state is None or state.rows is None:
        return None
    text = (
        f"{state.rows:,} tuples in, epoch {state.epoch or 0:,}, checkpoint "
        f"{state.flushed or 0:,} on disk; {state.partials or 0:,} partials of"
        f" {state.slices or 0:,} slices"
    )
    if state.restarts:
        text += f"; started again {state.restarts} ×"
    problem = state.backup_problem or ""
    if problem:
        text += f"; backup: {problem}"
    return "stage", text, not problem


def _estimates(query: QueryView) -> Line | None:
    estimates = query.estimates
    if estimates is None:
        return None
    able = sum(one.protection == "estimates" for one in estimates.workers)
    text = (
        f"within {estimates.within:g} with {estimates.confidence:.0%}: {able} of"
        f" {len(estimates.workers)} workers can be estimated, {estimates.estimated:,} results were"
    )
    bounds = [one.bound for one in estimates.workers if one.bound is not None]
    text += f", off by up to {max(bounds):.3g}" if bounds else ""
    text += "; recovering now" if estimates.recovering else ""
    text += f"; {estimates.problem}" if estimates.problem else ""
    return "estimates", text, not (estimates.recovering or estimates.problem)
