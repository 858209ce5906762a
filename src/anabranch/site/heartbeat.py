"""Tells the coordinator that a site is there, and learns from it where the others are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.runtime.base import Bell, Runtime

BEAT_S = 3.0


class Heartbeat:
    """`beat` tells the coordinator once. One that is away changes nothing here: it is told again
    when it is back, every `interval_s` and whenever there is `news`."""

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
