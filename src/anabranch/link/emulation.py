"""A slower network than the one there is, for trying out: delay, jitter and bandwidth of links,
which may change while data flows.

Batches are held back at the receiving end. Bandwidth is what one batch after the other occupies;
delay is what each travels, many at a time; order is kept.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import AnabranchError, SiteError
from anabranch.runtime.base import Runtime
from anabranch.runtime.pipe import Incoming
from anabranch.stream.batch import Batch, P

FLYING_BYTES = 10_000_000


@dataclass
class Emulation:
    """A link in its present state: it may change while batches are under way."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.delay_s or self.jitter_s or self.bytes_per_s)

    def travel_s(self, rng: random.Random) -> float:
        return self.delay_s + rng.uniform(0, self.jitter_s)

    def occupy_s(self, nbytes: int) -> float:
        return nbytes / self.bytes_per_s if self.bytes_per_s else 0.0


class Slowed(Generic[P]):
    """The batches of `inner`, each no earlier than the link would deliver it. At most about
    FLYING_BYTES are under way, since a sender takes all others for delivered; then sending waits,
    as it would on a real link.
    """

    def __init__(
        self, runtime: Runtime, inner: Incoming[Batch[P]], link: Emulation, silence_s: float | None
    ) -> None:
        self._runtime = runtime
        self._inner = inner
        self._link = link
        self._silence_s = silence_s
        self._flying: deque[tuple[float, Batch[P] | AnabranchError | None]] = deque()
        self._bytes = 0
        self._changed = runtime.signal()
        self._sender = runtime.spawn(self._transmit(), "link-emulation")

    async def receive(self, seconds: float | None = None) -> Batch[P] | None:
        """The next batch. Silence is that of the link below: a batch that still travels is not
        silence.
        """
        while not self._flying:
            await self._changed.wait()
        due, item = self._flying.popleft()
        if due > self._runtime.now():
            await self._runtime.sleep(due - self._runtime.now())
        if isinstance(item, AnabranchError):
            raise item
        if item is not None:
            self._bytes -= item.nbytes
            self._changed.notify()
        return item

    def close(self) -> None:
        self._sender.cancel()
        self._inner.close()
        self._flying.append((0.0, None))
        self._changed.notify()

    async def _transmit(self) -> None:
        rng = random.Random(0)
        due = 0.0
        item: Batch[P] | AnabranchError | None = None
        while True:
            try:
                item = await self._inner.receive(self._silence_s)
            except AnabranchError as error:
                item = error
            except Exception as error:  # whoever receives hears of it, and connects anew
                item = SiteError(f"the emulated link failed: {type(error).__name__}: {error}")
            if isinstance(item, Batch):
                if occupied := self._link.occupy_s(item.nbytes):
                    await self._runtime.sleep(occupied)
                due = max(due, self._runtime.now() + self._link.travel_s(rng))
                while self._bytes >= FLYING_BYTES:
                    await self._changed.wait()
                self._bytes += item.nbytes
            self._flying.append((due, item))
            self._changed.notify()
            if not isinstance(item, Batch):
                return


class EmulatedNetwork:
    """One `Emulation` for each pair of sites: its holders see it change."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self._cluster = cluster
        self._links: dict[tuple[str, str], Emulation] = {}
        self._rng = random.Random(0)

    def link(self, sender: str, receiver: str) -> Emulation:
        emulation = self._links.get((sender, receiver))
        if emulation is None:
            link = self._cluster.link(sender, receiver)
            emulation = Emulation(link.delay_us / 1e6, link.jitter_us / 1e6, link.bandwidth or 0.0)
            self._links[sender, receiver] = emulation
        return emulation

    def change(self, delays_s: Mapping[str, Mapping[str, float]]) -> None:
        """Sets delays from now on: sender → receiver → its delay."""
        for sender, receivers in delays_s.items():
            for receiver, delay_s in receivers.items():
                self.link(sender, receiver).delay_s = delay_s

    def round_trip_s(self, site: str, other: str) -> float:
        """The time that the emulation would add to a call and its answer."""
        ways = (self.link(site, other), self.link(other, site))
        return sum(way.travel_s(self._rng) for way in ways)
