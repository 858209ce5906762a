"""A line when a stream, a query or a site stops getting anywhere, and one when it goes on, for
the log and for whoever watches.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from anabranch.coordinator.base.reports import AnySite, QueryState
from anabranch.coordinator.status.query_states import WELL
from anabranch.errors import ErrorReport
from anabranch.runtime.log import note

STALLED = ("failed", "no input", "stuck", "sink away")
"""States of queries that are told. The others are about a site, whose coming and going is told."""
PATIENCE_S = 2.0
"""What is over sooner is not told."""
_MANY = 8


class QueryNews:
    """Looks at the sites' reports and the queries' states each time it is called. A trouble that
    stops many queries is a few lines.
    """

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}
        """(what it is about, in which trouble) → since when."""
        self._told: dict[tuple[str, str], float] = {}

    def look(
        self, sites: Iterable[AnySite], states: Mapping[str, QueryState], tables: Collection[str]
    ) -> None:
        now = self._clock()
        troubles = dict(_troubles(sites, tables)) | {
            (f"query {name}", one.state): one.reason
            for name, one in states.items()
            if one.state in STALLED
        }
        self._since = {key: self._since.get(key, now) for key in troubles}
        over = {key: self._told.pop(key) for key in list(self._told) if key not in troubles}
        new = [
            key
            for key, since in self._since.items()
            if key not in self._told and (since + PATIENCE_S <= now or key[1] == "failed")
        ]
        for key in new:
            self._told[key] = self._since[key]
        self._tell(new, troubles)
        self._tell_end(over, now, states)

    def _tell(self, new: list[tuple[str, str]], why: Mapping[tuple[str, str], str]) -> None:
        together: dict[str, list[str]] = defaultdict(list)
        for what, trouble in new:
            kind, name = what.split(" ")[:2]
            reason = why[what, trouble]
            if kind == "query" and trouble != "failed":
                together[trouble].append(name)
                continue
            text = f"{what} {trouble}" + (f": {reason}" if reason else "")
            note("failed" if trouble == "failed" else "stalled", text, wrong=True, query=name)
            self._say(text)
        for trouble, names in together.items():
            verb = f"have {trouble}" if trouble == "no input" else f"are {trouble}"
            text = f"queries {verb}: {listed(names)}"
            if len(names) == 1:
                reason = why[f"query {names[0]}", trouble]
                text = f"query {names[0]}: {trouble}: {reason}"
            note("stalled", text, wrong=True, query=names[0] if len(names) == 1 else "")
            self._say(text)

    def _tell_end(
        self,
        over: Mapping[tuple[str, str], float],
        now: float,
        states: Mapping[str, QueryState],
    ) -> None:
        """Says that these go on; not of what was dropped, or is in another trouble by now."""
        still = {what for what, _ in self._since}
        since = {
            what.partition(" ")[2]: began
            for (what, _), began in over.items()
            if what not in still and what.startswith("query ")
        }
        names = [name for name in since if name in states and states[name].state in WELL]
        if names:
            after = now - min(since[name] for name in names)
            verb = "query goes on" if len(names) == 1 else "queries go on"
            text = f"{verb} after {after:.0f} s: {listed(names)}"
            note("goes on", text)
            self._say(text)


def listed(names: list[str]) -> str:
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more


def _troubles(
    sites: Iterable[AnySite], tables: Collection[str]
) -> Iterable[tuple[tuple[str, str], str]]:
    """The troubles of the sources that run."""
    for site in sites:
        for source in site.sources:
            what = f"{'table' if source.stream in tables else 'stream'} {source.stream}"
            if source.error:
                yield (f"{what} at {site.site}", "failed"), without_name(source.error, what)
            elif source.problem:
                yield (f"{what} at {site.site}", "waits"), source.problem


def without_name(error: ErrorReport, what: str) -> str:
    """The line of a source's error, for callers who already say which source it is."""
    return replace(error, message=error.message.removeprefix(f"{what}: ")).line()


Say = Callable[[str], None]


class SiteNews:
    """It is told repeatedly who is alive, and which processes died."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._alive: set[str] = set()
        self._gone: dict[str, float] = {}
        self.endings: dict[str, str] = {}
        """Site that is away → how its process ended."""

    def died(self, site: str, code: int) -> None:
        """Says that its process has ended with `code`, and is started again."""
        self._gone[site] = self._clock()
        self.endings[site] = ending = _ending(code)
        self._say(f"site {site} died ({ending}) and is being started again")

    def look(self, alive: Iterable[str]) -> None:
        now, up = self._clock(), set(alive)
        for site in sorted(self._alive - up - self._gone.keys()):
            self._gone[site] = now
            self._say(f"site {site} does not answer any more")
        for site in sorted(up & self._gone.keys()):
            self.endings.pop(site, None)
            self._say(f"site {site} is up again after {now - self._gone.pop(site):.0f} s")
        self._alive = up


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}; its log says why"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
