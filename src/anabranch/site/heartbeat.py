"""Tells the coordinator that a site is there, and learns from it where the others are."""

from __future__ import annotations

import threading

from anabranch.errors import AnabranchError
from anabranch.link.peer import Peer
from anabranch.site.site import Site


class Heartbeat:
    """A coordinator that is away changes nothing here: it is told again when it is back."""

    def __init__(self, site: Site, coordinator: Peer, interval_s: float) -> None:
        self._site = site
        self._coordinator = coordinator
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._news = threading.Event()
        site.deployment.on_news = self._news.set
        self._thread = threading.Thread(target=self._run, name=f"{site.name}-beat", daemon=True)

    def start(self) -> None:
        """The first beat is the registration, and raises if the coordinator does not take it."""
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        report = self._site.report()
        self._site.learn(self._coordinator.call("heartbeat", timeout_s=3.0, report=report))

    def close(self) -> None:
        self._stopped.set()
        self._news.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._news.wait(self._interval_s)
            self._news.clear()
            if self._stopped.is_set():
                return
            try:
                self.beat()
            except AnabranchError:
                continue
