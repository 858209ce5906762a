"""Threads that run by themselves as long as their process does."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

from anabranch.runtime.loop import process_loop
from anabranch.runtime.troubles import Troubles


class Flag(Protocol):
    """What we need of a thread's Event."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class ThreadTime:
    """The time by which a waiting thread goes; a simulation has its own."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> Flag:
        return threading.Event()


REAL_TIME = ThreadTime()


def supervised(
    name: str,
    run: Callable[[], None],
    stopped: threading.Event | None = None,
    troubles: Troubles | None = None,
) -> threading.Thread:
    """A thread, not yet started, that ends when `run` returns. If `run` raises, it is called again
    after a pause, unless all has `stopped`; each time is counted among the process's `troubles`.
    """
    told = troubles or process_loop().troubles
    stop = stopped or threading.Event()

    def whole() -> None:
        while not stop.is_set():
            try:
                run()
                return
            except Exception as error:
                pause_s = told.happened(name, error, time.monotonic())
                stop.wait(pause_s * random.uniform(0.5, 1.0))

    return threading.Thread(target=whole, name=name, daemon=True)
