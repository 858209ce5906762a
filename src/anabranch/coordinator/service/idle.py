"""When a run is over: every finite source is used up and all its results are out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.coordinator.status.description import primaries
from anabranch.coordinator.status.report import SystemStatus
from anabranch.errors import AnabranchError, ConfigError
from anabranch.link.reports import SourceReport, TaskReport


def failures(status: SystemStatus) -> list[AnabranchError]:
    """What has failed anywhere, as it was raised there. A standby that failed protects no more; its
    query goes on."""
    parts: list[SourceReport | TaskReport] = [*status.sources(), *primaries(status.sites)]
    return [part.error.error() for part in parts if part.error]


def lost_sites(status: SystemStatus) -> list[str]:
    return [site.problem for site in status.sites if site.state != "up"]


def idle(status: SystemStatus) -> bool:
    """Raises ConfigError if there is nothing finite to wait for. While a site does not run what is
    its own, what it still has to do is unknown."""
    if any(site.missing for site in status.sites):
        return False
    sources = {one.stream: one for one in status.sources()}
    finite = {name for name, source in sources.items() if source.finite}
    ending = [query for query in status.ends if sources_of(query, status.ends) <= finite]
    if not ending:
        raise ConfigError(
            "no query reads a source that ends, so the run would never be idle",
            remedy="Use --for 30s instead of --until-idle.",
        )
    awaited = frozenset[str]().union(*(sources_of(query, status.ends) for query in ending))
    if any(sources[name].state != "ended" for name in awaited):
        return False
    return all(one.state == "done" for one in primaries(status.sites) if one.query in ending)


def sources_of(name: str, ends: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The streams from outside that a query ends with."""
    if name not in ends:
        return frozenset({name})
    return frozenset[str]().union(*(sources_of(one, ends) for one in ends[name]))
