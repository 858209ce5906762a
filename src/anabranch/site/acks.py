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
            self._wake.wait(max(0.0, self._due - time.monotonic()))
            self._wake.clear()
            if self._closed:
                return
            level0 = time.monotonic() >= self._due
            if level0:
                self._due = time.monotonic() + self._interval_s
            acks = self._collect(level0)
            if acks:
                self._deliver(acks, rng)

    def _deliver(self, acks: list[Ack], rng: random.Random) -> None:
        if self._emulation:
            time.sleep(self._emulation.travel_s(rng))
        try:
            self._send(acks)
        except AnabranchError:
            self._due = time.monotonic() + self._interval_s  # away; its links retry on their own
