"""The emulated links between all sites, as they are now: they may change while data flows."""

from __future__ import annotations

import random
from collections.abc import Mapping

from anabranch.config.cluster import Cluster
from anabranch.link.emulation import Emulation


class EmulatedNetwork:
    """One `Emulation` for each pair of sites: whoever holds it sees it change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._links: dict[tuple[str, str], Emulation] = {}
        self._rng = random.Random(0)

    def link(self, sender: str, receiver: str) -> Emulation:
        found = self._links.get((sender, receiver))
        if found is None:
            link = self._cluster.link(sender, receiver)
            found = Emulation(link.delay_us / 1e6, link.jitter_us / 1e6, link.bandwidth or 0.0)
            self._links[sender, receiver] = found
        return found

    def change(self, delays_s: Mapping[str, Mapping[str, float]]) -> None:
        """Sender → receiver → its delay from now on."""
        for sender, receivers in delays_s.items():
            for receiver, delay_s in receivers.items():
                self.link(sender, receiver).delay_s = delay_s

    def round_trip_s(self, here: str, there: str) -> float:
        """What the emulation would add to a call and its answer."""
        ways = (self.link(here, there), self.link(there, here))
        return sum(way.travel_s(self._rng) for way in ways)
