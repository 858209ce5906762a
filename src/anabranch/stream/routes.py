"""Where each stream is produced now, and where its standby is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """`site` produces the stream in `epoch`; `standby`, if there is one, would do so in `claim`."""

    site: str
    epoch: int = 0
    standby: str | None = None
    claim: int = 0

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites to which acks go."""
        return (self.site,) if self.standby is None else (self.site, self.standby)

    @property
    def _order(self) -> tuple[int, int]:
        return self.epoch, self.claim

    def dismisses(self, site: str, claim: int) -> bool:
        """Whether the standby at `site` that would take over in `claim` has been replaced."""
        return self.claim > claim and self.standby != site

    def replaces(self, other: Route) -> bool:
        return self._order > other._order


class Routes:
    """Routes arrive from several sides, in any order; the newest holds."""

    def __init__(self) -> None:
        self._known: dict[str, Route] = {}

    def __getitem__(self, stream: str) -> Route | None:
        return self._known.get(stream)

    def producers(self) -> dict[str, tuple[str, int]]:
        """Stream → who produces it, in which epoch."""
        return {stream: (route.site, route.epoch) for stream, route in list(self._known.items())}

    def newest(self) -> int:
        """The greatest epoch of any producer or claim."""
        known = list(self._known.values())
        return max((number for one in known for number in (one.epoch, one.claim)), default=0)

    def learn(self, news: Mapping[str, Route]) -> dict[str, Route]:
        """Learns the `news`; returns those that were new."""
        fresh = {
            stream: route
            for stream, route in news.items()
            if (known := self._known.get(stream)) is None or route.replaces(known)
        }
        self._known.update(fresh)
        return fresh
