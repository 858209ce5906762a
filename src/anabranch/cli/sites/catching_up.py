"""How far a system is that goes on after a restart: prints a line now and then on the terminal of
`up`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from anabranch.coordinator.status.report import SystemStatus
from anabranch.link.reports import SourceReport
from anabranch.runtime.threads import supervised

LOOK_S = 1.0
TELL_S = 5.0
QUIET_S = 3.0
"""What is over sooner is not told: most restarts are."""
GIVE_UP_S = 30.0
"""So long nothing to be read again may be seen, before there is nothing to tell any more."""


class CatchingUp:
    """Reports how a system catches up. `look` gives the system's status. Nothing here delays the
    system.
    """

    def __init__(
        self,
        look: Callable[[], SystemStatus],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._say = say
        self._clock = clock
        self._begun = self._seen = self._told = clock()
        self._since: float | None = None

    def begin(self, stopped: threading.Event) -> None:
        """Reports from a thread of its own, until the system has caught up or is stopped."""

        def watch() -> None:
            while not stopped.wait(LOOK_S) and self.tell():
                pass

        supervised("catching-up", watch, stopped).start()

    def tell(self) -> bool:
        """Says how far the system is, if that is due. Returns whether there may be more to say."""
        now = self._clock()
        streams = list(_behind(self._look()))
        if streams:
            self._seen = now
            self._since = self._since or now
            if now - self._since >= QUIET_S and now - self._told >= TELL_S:
                self._told = now
                self._say(f"catching up: {'; '.join(_line(one) for one in streams)}")
            return True
        if self._since is None:
            return now - self._begun < GIVE_UP_S
        if now - self._since >= QUIET_S:
            self._say(f"caught up after {now - self._begun:.0f} s")
        return False


def _behind(status: SystemStatus) -> list[SourceReport]:
    return [one for one in status.sources() if one.replayed < one.to_replay]


def _line(source: SourceReport) -> str:
    there, whole = source.replayed, source.to_replay
    left = f", about {(whole - there) / source.rate:.0f} s left" if source.rate else ""
    return f"stream {source.stream} {there:,} of {whole:,} recorded tuples{left}"
