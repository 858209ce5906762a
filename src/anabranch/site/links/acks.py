"""Acks to one site upstream: what arrived (Level-0) and what is no longer needed (Level-1)."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from math import floor
from typing import Any

from anabranch.errors import AnabranchError, StorageError
from anabranch.link.emulation import Emulation
from anabranch.link.messages import Ack
from anabranch.runtime.base import Runtime

REPEAT_S = 5.0
"""An ack that says nothing new is repeated this often, in case upstream has lost it."""
GATHER_S = 0.005
"""What is released within this time goes upstream in one message."""


class AckSender:
    """Sends both levels every `interval_s`, and Level-1 alone as soon as `released` is called; of
    both only what upstream does not know.

    `collect(level0)` gives the present acks, so the next ack makes up for a lost one. `arrived`
    asks for both levels at once, because enough has arrived that upstream should release it.
    Senders of one process send at the same times: then what they make others release, and what they
    keep on the disk, is collected together.
    """

    def __init__(
        self,
        runtime: Runtime,
        site: str,
        interval_s: float,
        collect: Callable[[bool], list[Ack]],
        send: Callable[[list[Ack]], Coroutine[Any, Any, None]],
        emulation: Emulation,
    ) -> None:
        self._runtime = runtime
        self._interval_s = interval_s
        self._collect = collect
        self._send = send
        self._emulation = emulation
        self._woken = False
        self._wake = runtime.signal()
        self._due = 0.0
        self._told: dict[tuple[str, str], Ack] = {}
        self._repeat = 0.0
        self._coroutine = runtime.supervise(f"acks to {site}", self._run)

    def released(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake.notify()

    def arrived(self) -> None:
        self._due = 0.0
        self.released()

    def tell_all(self) -> None:
        """Tells upstream both levels of everything, at once, because it may know nothing."""
        self._told.clear()
        self.arrived()

    def close(self) -> None:
        self._coroutine.cancel()

    async def _run(self) -> None:
        now, rng = self._runtime.now, random.Random(0)
        while True:
            while not self._woken and self._due > now():
                await self._wake.wait(self._due - now())
            if self._due > now():
                await self._runtime.sleep(GATHER_S)
            self._woken = False
            level0 = now() >= self._due
            if level0:
                self._due = following(now(), self._interval_s)
            if acks := self._news(self._collect(level0)):
                await self._deliver(acks, rng)

    def _news(self, acks: Iterable[Ack]) -> list[Ack]:
        """The acks that upstream does not know yet; now and then all."""
        if self._runtime.now() >= self._repeat:
            self._repeat = self._runtime.now() + REPEAT_S
            self._told.clear()
        return [ack for ack in acks if not _same(ack, self._told.get(_key(ack)))]

    async def _deliver(self, acks: list[Ack], rng: random.Random) -> None:
        if self._emulation:
            await self._runtime.sleep(self._emulation.travel_s(rng))
        try:
            await self._send(acks)
            for ack in acks:
                known = self._told.get(_key(ack))
                self._told[_key(ack)] = _both(ack, known) if known else ack
        except AnabranchError as error:  # away; its links retry on their own
            self._due = self._runtime.now() + self._interval_s
            if isinstance(error, StorageError):  # our own disk, and it is to be seen
                raise


def following(now: float, interval: float) -> float:
    """The next multiple of `interval`. `now` may be one itself, rounded to either side: on a
    virtual clock a sender that is due at once again would never let time pass.
    """
    due = (floor(now / interval) + 1) * interval
    return due if due > now else due + interval


def _key(ack: Ack) -> tuple[str, str]:
    return ack.stream, ack.consumer


def _both(ack: Ack, known: Ack) -> Ack:
    """What upstream knows after an ack, which may have only one of the levels."""
    return replace(ack, received=known.received) if ack.received is None else ack


def _same(ack: Ack, before: Ack | None) -> bool:
    """Whether it says no more than the one before."""
    return (
        before is not None
        and ack.received in (None, before.received)
        and (ack.point, ack.epoch, ack.own) == (before.point, before.epoch, before.own)
    )
