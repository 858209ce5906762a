"""Sites that are lost during a run: which losses end it, and who took over after the others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from anabranch.coordinator.status.report import SystemStatus
from anabranch.errors import SiteError

PATIENCE_S = 1.0
"""A site that does not answer may be slow; and who takes over has to say so first."""


class Losses:
    """Looks at each status of a run in turn; `say` is called once a lost site has been replaced."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since: dict[str, float] = {}
        self._primaries: dict[str, str] = {}
        self._taken: defaultdict[str, list[str]] = defaultdict(list)
        """Lost site → the queries that others have taken over from it, and who has."""

    def look(self, status: SystemStatus) -> None:
        """Raises SiteError if a lost site ran something that no other site has."""
        down = {one.site: one for one in status.sites if one.state != "up"}
        self._follow(status, down)
        for site, report in down.items():
            lost_for = self._clock() - self._since.setdefault(site, self._clock())
            if report.state == "stuck" or (report.lost and lost_for >= PATIENCE_S):
                died = report.state == "starting"  # again, by us: what it had is lost
                raise SiteError(f"a site is lost: {f'{site} died' if died else report.problem}")
            if not report.missing:
                self._tell(site)
        for site in [one for one in self._since if one not in down]:
            del self._since[site]
            self._tell(site)

    def _follow(self, status: SystemStatus, down: Iterable[str]) -> None:
        for name, primary in status.protection.items():
            before = self._primaries.get(name, primary.site)
            self._primaries[name] = primary.site
            if before != primary.site and before in {*down, *self._since}:
                self._taken[before].append(f"{primary.site} took over {name}")

    def _tell(self, site: str) -> None:
        if taken := self._taken.pop(site, None):
            self._say(f"site {site} is lost; {', '.join(taken)}")
