"""A site tells the coordinator that it is there, learns from it where the others are, and
measures how far these are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from hashlib import sha256
from typing import Any

from anabranch.errors import AnabranchError, SiteError
from anabranch.link.emulation import EmulatedNetwork
from anabranch.link.messages import Ping
from anabranch.link.network import Network
from anabranch.runtime.base import Bell, Runtime

BEAT_S = 3.0


class Heartbeat:
    """`beat` tells the coordinator once. If the coordinator is away, nothing changes here: it is
    told again when it is back, every `interval_s` and whenever there is `news`.
    """

    def __init__(
        self,
        runtime: Runtime,
        beat: Callable[[], Coroutine[Any, Any, None]],
        news: Bell,
        interval_s: float,
    ) -> None:
        self._beat = beat
        self._news = news
        self._interval_s = interval_s
        self._coroutine = runtime.supervise("heartbeat", self._run)

    def close(self) -> None:
        self._coroutine.cancel()

    async def _run(self) -> None:
        while True:
            await self._news.heard(self._interval_s)
            try:
                await self._beat()
            except AnabranchError:
                continue


INTERVAL_S = 1.0
AT_A_TIME = 8
"""Others that are called in a round; with more, each has its turn every few rounds."""
LANDMARKS, NEIGHBOURS, EXPLORED = 8, 8, 2
"""With more others than the first two together, only those are measured: landmarks, the same for
all sites, and the nearest of the others that are known; and so many more of these a turn."""
TRIES = 2
"""Of which the shorter counts: what one of them waited for was not the network."""
TIMEOUT_S = 2.0


def landmarks(sites: Iterable[str]) -> list[str]:
    """The same few of all sites wherever it is asked; one that comes or goes changes one of them at
    most."""
    return sorted(sites, key=lambda name: sha256(name.encode()).digest())[:LANDMARKS]


class RoundTrips:
    """Seconds there and back, emulated delays included, of the last call to each site that
    answered.
    """

    def __init__(
        self, name: str, runtime: Runtime, network: Network, emulated: EmulatedNetwork
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._network = network
        self._emulated = emulated
        self._known: dict[str, float] = {}
        self._rng = random.Random(name)
        self._turn: list[str] = []
        self._coroutine = runtime.supervise(f"round trips of {name}", self._run)

    def report(self) -> dict[str, float]:
        return dict(self._known)

    def close(self) -> None:
        self._coroutine.cancel()

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(INTERVAL_S)
            await self.round()

    async def round(self) -> None:
        others = [one for one in self._network.sites() if one != self._name]
        for gone in self._known.keys() - set(others):
            del self._known[gone]
        for other in self._next(self._partners(others)):
            try:
                took = min([await self._call(other) for _ in range(TRIES)])
            except SiteError:
                self._known.pop(other, None)
                continue
            self._known[other] = took + self._emulated.round_trip_s(self._name, other)

    def _partners(self, others: list[str]) -> list[str]:
        """Whom to measure, so that a system of n sites needs O(n) calls. Those that are far are
        forgotten."""
        if len(others) <= LANDMARKS + NEIGHBOURS or self._turn:
            return others
        marks = landmarks([*others, self._name])
        rest = [one for one in others if one not in marks]
        near = sorted(self._known.keys() & set(rest), key=self._known.__getitem__)[:NEIGHBOURS]
        for far in self._known.keys() - {*marks, *near}:
            del self._known[far]
        strangers = [one for one in rest if one not in near]
        explored = max(EXPLORED, NEIGHBOURS - len(near))
        some = self._rng.sample(strangers, min(explored, len(strangers)))
        return [one for one in (*marks, *near, *some) if one != self._name]

    def _next(self, others: list[str]) -> list[str]:
        """The next sites, each in turn, in an order that changes from turn to turn."""
        if not self._turn:
            self._turn = list(others)
            self._rng.shuffle(self._turn)
        chosen, self._turn = self._turn[:AT_A_TIME], self._turn[AT_A_TIME:]
        return [one for one in chosen if one in others]

    async def _call(self, other: str) -> float:
        begun = self._runtime.now()
        await self._network.call(other, Ping(), TIMEOUT_S)
        return self._runtime.now() - begun
