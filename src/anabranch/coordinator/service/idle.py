"""When a run is over: every finite source is used up and all its results are out."""

from __future__ import annotations

from typing import Any

from anabranch.coordinator.protection.description import primaries
from anabranch.errors import AnabranchError, ConfigError, from_dict

Status = dict[str, Any]


def failures(status: Status) -> list[AnabranchError]:
    """What has failed anywhere, as it was raised there. A standby that failed protects no more; its
    query goes on."""
    parts = [part for site in status["sites"] for part in site["sources"]]
    parts += primaries(status)
    return [from_dict(part["error"]) for part in parts if part["error"]]


def lost_sites(status: Status) -> list[str]:
    return [site["problem"] for site in status["sites"] if site["state"] != "up"]


def idle(status: Status) -> bool:
    """Raises ConfigError if there is nothing finite to wait for. While a site does not run what is
    its own, what it still has to do is unknown."""
    if any(site["missing"] for site in status["sites"]):
        return False
    sources = {one["stream"]: one for site in status["sites"] for one in site["sources"]}
    finite = {name for name, source in sources.items() if source["finite"]}
    ending = [query for query in status["ends"] if sources_of(query, status["ends"]) <= finite]
    if not ending:
        raise ConfigError(
            "no query reads a source that ends, so the run would never be idle",
            remedy="Use --for 30s instead of --until-idle.",
        )
    awaited = frozenset[str]().union(*(sources_of(query, status["ends"]) for query in ending))
    if any(sources[name]["state"] != "ended" for name in awaited):
        return False
    return all(task["state"] == "done" for task in primaries(status) if task["query"] in ending)


def sources_of(name: str, ends: dict[str, list[str]]) -> frozenset[str]:
    """The streams from outside that a query ends with."""
    if name not in ends:
        return frozenset({name})
    return frozenset[str]().union(*(sources_of(one, ends) for one in ends[name]))
