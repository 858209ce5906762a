"""One line each when a site goes and when it is back, for whoever watches the system."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

Say = Callable[[str], None]


class SiteNews:
    """Told who is alive again and again, and of processes that died."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._alive: set[str] = set()
        self._gone: dict[str, float] = {}
        self.endings: dict[str, str] = {}
        """Site that is away → how its process ended."""

    def died(self, site: str, code: int) -> None:
        """Its process has ended with `code`, and is started again."""
        self._gone[site] = self._clock()
        self.endings[site] = ending = _ending(code)
        self._say(f"site {site} died ({ending}) and is being started again")

    def look(self, alive: Iterable[str]) -> None:
        now, here = self._clock(), set(alive)
        for site in sorted(self._alive - here - self._gone.keys()):
            self._gone[site] = now
            self._say(f"site {site} does not answer any more")
        for site in sorted(here & self._gone.keys()):
            self.endings.pop(site, None)
            self._say(f"site {site} is up again after {now - self._gone.pop(site):.0f} s")
        self._alive = here


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}; its log says why"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
