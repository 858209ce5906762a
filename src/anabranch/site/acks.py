"""Acks to one site upstream: what arrived (Level-0) and what is no longer needed (Level-1)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.link.emulation import Emulation

Ack = dict[str, Any]
REPEAT_S = 5.0
"""An ack that says nothing new is repeated this often, in case upstream has lost it."""


class AckSender:
    """Sends both levels every `interval_s`, and Level-1 alone as soon as `released` is called.

    `collect(level0)` gives the acks as things stand, so a lost one is made up for by the next.
    `arrived` asks for both levels at once: so much has arrived that upstream should let go of it.
    """

    def __init__(
        self,
        site: str,
        interval_s: float,
        collect: Callable[[bool], list[Ack]],
        send: Callable[[list[Ack]], None],
        emulation: Emulation,
    ) -> None:
        self._interval_s = interval_s
        self._collect = collect
        self._send = send
        self._emulation = emulation
        self._wake = threading.Event()
        self._closed = False
        self._due = 0.0
        self._last: list[Ack] = []
        self._last_sent = 0.0
        self._thread = threading.Thread(target=self._run, name=f"acks-{site}", daemon=True)
        self._thread.start()

    def released(self) -> None:
        self._wake.set()

    def arrived(self) -> None:
        self._due = 0.0
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        rng = random.Random(0)
        while True:
            woken = self._wake.wait(max(0.0, self._due - time.monotonic()))
            self._wake.clear()
            if self._closed:
                return
            level0 = not woken or time.monotonic() >= self._due
            if level0:
                self._due = time.monotonic() + self._interval_s
            acks = self._collect(level0)
            if acks and not (level0 and self._told(acks)):
                self._deliver(acks, rng)

    def _told(self, acks: list[Ack]) -> bool:
        """Upstream knows just that, from a moment ago: idle streams need not be acknowledged."""
        return acks == self._last and time.monotonic() < self._last_sent + REPEAT_S

    def _deliver(self, acks: list[Ack], rng: random.Random) -> None:
        if self._emulation:
            time.sleep(self._emulation.travel_s(rng))
        try:
            self._send(acks)
            self._last, self._last_sent = acks, time.monotonic()
        except AnabranchError:
            self._due = time.monotonic() + self._interval_s  # away; its links retry on their own
