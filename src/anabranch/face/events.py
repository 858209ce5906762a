"""The events between two moments of the system: their differences.

Pure: times come with the snapshots, or with what sites report of a take-over, to the millisecond.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from anabranch.face.model import WELL, QueryView, SiteView, Snapshot, View

Kind = Literal[
    "site_up",
    "site_down",
    "created",
    "dropped",
    "failed",
    "done",
    "noticed",
    "taken_over",
    "recovered",
    "moved",
    "protected",
    "unprotected",
    "shed",
    "checkpoint",
    "estimate",
    "statement",
    "kill",
    "stalled",
    "goes_on",
]


STALLED = ("no input", "stuck", "sink away")
"""States of queries that wait for something that may be for a person to mend."""
_MANY = 8
"""Names in one event."""


class Difference(View):
    """An event before it has a number and a story. `at` is its time, if that is known better than
    from the snapshot.
    """

    kind: Kind
    text: str
    query: str = ""
    site: str = ""
    at: float | None = None


def differences(before: Snapshot, after: Snapshot) -> list[Difference]:
    """The events, those of sites first, so that causes come before what happens to queries."""
    return [
        *_sites(before, after),
        *_streams(before, after),
        *_queries(before, after),
        *_stalled(before, after),
        *_shed(before, after),
        *_stages(before, after),
        *_estimates(before, after),
    ]


def remembered(before: Snapshot, after: Snapshot) -> Snapshot:
    """`after`, with each query that nobody runs at the moment at its former place. Otherwise a
    take-over that is half done at the time of a snapshot would produce no event.
    """
    was = {one.name: one for one in before.queries}
    return after.model_copy(
        update={"queries": tuple(_remembered(was.get(one.name), one) for one in after.queries)}
    )


def _remembered(old: QueryView | None, query: QueryView) -> QueryView:
    if query.site or old is None:
        return query
    return query.model_copy(update={"site": old.site, "taken": old.taken})


def _sites(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    was = {one.name: one for one in before.sites}
    for site in after.sites:
        old = was.get(site.name)
        up, was_up = site.state == "up", old is not None and old.state == "up"
        if up and not was_up:
            text = f"site {site.name} is up, process {site.pid}"
            yield Difference(kind="site_up", text=text, site=site.name)
        elif was_up and not up:
            text = _gone(site, [one.name for one in before.queries if one.site == site.name])
            yield Difference(kind="site_down", text=text, site=site.name)
        elif up and old is not None and old.pid != site.pid:
            ended = f" ({site.ending})" if site.ending else ""
            text = f"site {site.name} died{ended} and is back, process {site.pid}"
            yield Difference(kind="site_up", text=text, site=site.name)


def _gone(site: SiteView, ran: list[str]) -> str:
    how = f"died ({site.ending})" if site.ending else f"is {site.state}: {site.problem}"
    return f"site {site.name} {how}" + (f"; it ran {_listed(ran)}" if ran else "")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more


def _streams(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """Events of sources that fail, or cannot reach what they read from."""
    was = {one.name: one for one in before.streams}
    for stream in after.streams:
        old = was.get(stream.name)
        name = f"{stream.kind} {stream.name}"
        error = stream.error
        if stream.state == "failed" and not (old and old.state == "failed"):
            text = f"{name} at {stream.site} failed: {error}"
            yield Difference(
                kind="failed", text=text, query=stream.name, site=stream.site, at=stream.failed_at
            )
        elif stream.state != "failed" and bool(error) != bool(old and old.error):
            kind: Kind = "stalled" if error else "goes_on"
            text = f"{name} at {stream.site} " + (f"waits: {error}" if error else "goes on")
            yield Difference(kind=kind, text=text, query=stream.name, site=stream.site)


def _stalled(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """Queries that stop making progress for the same reason are one event; so are those that go on
    again.
    """
    was = {one.name: one for one in before.queries}
    stalled: dict[str, list[QueryView]] = defaultdict(list)
    again: list[str] = []
    for query in after.queries:
        old = was.get(query.name)
        now, then = query.state in STALLED, bool(old and old.state in STALLED)
        if now and not (old and old.state == query.state):
            stalled[query.state].append(query)
        elif then and query.state in WELL:
            again.append(query.name)
    for state, queries in stalled.items():
        reasons = {one.error for one in queries if one.error}
        why = f": {reasons.pop()}" if len(reasons) == 1 else ""
        text = f"{state}: {_listed([one.name for one in queries])}{why}"
        yield Difference(kind="stalled", text=text, query=queries[0].name)
    if again:
        yield Difference(kind="goes_on", text=f"running again: {_listed(again)}", query=again[0])


def _queries(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    was = {one.name: one for one in before.queries}
    for query in after.queries:
        old = was.pop(query.name, None)
        if old is None:
            at = query.site or query.home
            text = f"{query.kind} {query.name} created" + (f" at {at}" if at else "")
            yield Difference(kind="created", text=text, query=query.name, site=at)
            continue
        if old.run != query.run:
            text = f"{query.kind} {query.name} dropped and created again"
            yield Difference(kind="created", text=text, query=query.name, site=query.home)
        yield from _moved(old, query, after)
        yield from _recovered(old, query)
        if query.state != old.state and query.state in ("failed", "done"):
            text = f"{query.kind} {query.name} {query.state}" + (query.error and f": {query.error}")
            kind: Kind = "failed" if query.state == "failed" else "done"
            yield Difference(kind=kind, text=text, query=query.name, site=query.site)
        yield from _protection(old, query)
    for gone in was.values():
        yield Difference(kind="dropped", text=f"{gone.kind} {gone.name} dropped", query=gone.name)


def _moved(old: QueryView, query: QueryView, after: Snapshot) -> Iterator[Difference]:
    """A pocket that is started now, or together with all statements that are being collected."""
    if query.estimates or not (old.site and query.site) or old.site == query.site:
        return
    gone = all(one.state != "up" for one in after.sites if one.name == old.site)
    taken = query.taken
    if not taken.asked if taken else gone:
        name, was_at = query.name, old.site
        if taken and taken.noticed:
            text = f"{query.site} finds {was_at} gone, which ran {name}"
            yield Difference(kind="noticed", text=text, query=name, site=was_at, at=taken.noticed)
        text = f"{query.site} has taken {name} over from {was_at}"
        at = taken.claimed if taken else None
        yield Difference(kind="taken_over", text=text, query=name, site=was_at, at=at)
    else:
        text = f"{query.name} moved from {old.site} to {query.site}"
        yield Difference(kind="moved", text=text, query=query.name, site=query.site)


def _recovered(old: QueryView, query: QueryView) -> Iterator[Difference]:
    """The event that all tuples which the dead site had got are processed, or all results that it
    owed are estimated.
    """
    taken, before = query.taken, old.taken
    known = before and taken and before.epoch == taken.epoch and before.recovered
    if taken and taken.recovered and not taken.asked and not known:
        text = f"{query.site} has caught up with all that {taken.was_at} had got for {query.name}"
        yield Difference(
            kind="recovered", text=text, query=query.name, site=taken.was_at, at=taken.recovered
        )
    was, now = old.estimates, query.estimates
    if was and now and was.recovering and not now.recovering:
        text = f"all damaged windows of {query.name} are estimated"
        yield Difference(kind="recovered", text=text, query=query.name)


def _protection(old: QueryView, query: QueryView) -> Iterator[Difference]:
    """Events of protection. A query with a new standby was without one for a while, however
    short.
    """
    was, now = old.protection, query.protection
    if now is None:
        return
    safe_before = was.standby if was and was.protected else None
    safe_now = now.standby if now.protected else None
    if safe_now == safe_before:
        return
    kind: Kind = "protected" if now.protected else "unprotected"
    text = f"{query.name} is {now.text}"
    yield Difference(kind=kind, text=text, query=query.name, site=query.site)


def _shed(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    was = {one.name: one.left_out.get("shed", 0) for one in before.streams}
    for stream in after.streams:
        shed = stream.left_out.get("shed", 0)
        if shed > was.get(stream.name, 0):
            text = f"stream {stream.name} has shed {shed:,} tuples so far"
            yield Difference(kind="shed", text=text, query=stream.name, site=stream.site)


def _stages(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    was = {one.name: _flushed(one) for one in before.queries}
    for query in after.queries:
        if (flushed := _flushed(query)) > was.get(query.name, 0):
            text = f"checkpoint {flushed:,} of {query.name} is on disk"
            yield Difference(kind="checkpoint", text=text, query=query.name, site=query.site)


def _flushed(query: QueryView) -> int:
    return (query.stage.flushed if query.stage else None) or 0


def _estimates(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """Estimates for workers at sites that are down: they belong to the story of that site's
    death.
    """
    was = {one.name: one.estimates.estimated for one in before.queries if one.estimates}
    away = {one.name for one in after.sites if one.state != "up"}
    for query in after.queries:
        more = query.estimates.estimated - was.get(query.name, 0) if query.estimates else 0
        if query.estimates and more > 0:
            dead = [one.site for one in query.estimates.workers if one.site in away]
            text = f"{more:,} results of {query.name} estimated within {query.estimates.within:g}"
            yield Difference(
                kind="estimate", text=text, query=query.name, site=dead[0] if dead else ""
            )
