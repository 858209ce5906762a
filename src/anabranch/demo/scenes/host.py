"""What a scene needs of the system that it plays on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.errors import TaskError
from anabranch.link.messages import Emulate

LOOK_S = 0.1


@dataclass(frozen=True)
class SceneOutcome:
    """What a scene has shown, in one sentence. `well` says whether the output was right; None if
    the scene could not be played, and the sentence says why.
    """

    sentence: str
    well: bool | None = True


class Scene:
    """`title` says what is shown; `play` shows it and removes all that it created."""

    title = ""

    def play(self, host: SceneHost) -> SceneOutcome:
        raise NotImplementedError


@dataclass
class SceneHost:
    """`execute` runs statements whose paths start from `folder`; `kill` ends a site's process;
    `progress` is called with what is waited for.
    """

    coordinator: Coordinator
    folder: Path
    execute: Callable[[str], object]
    kill: Callable[[str], object]
    progress: Callable[[str], None]

    def status(self) -> SystemStatus:
        return self.coordinator.status()

    def wait(
        self, true: Callable[[SystemStatus], Any], what: str, timeout_s: float
    ) -> SystemStatus:
        """Waits until `true` holds. Raises TaskError if it does not hold in time."""
        deadline = time.monotonic() + timeout_s
        self.progress(f"{what} …")
        while time.monotonic() < deadline:
            status = self.status()
            if true(status):
                return status
            time.sleep(LOOK_S)
        raise TaskError(
            f"not within {timeout_s:g} s: {what}", remedy="Is the machine busy with something else?"
        )

    def wait_until_up(self) -> None:
        self.wait(
            lambda status: all(one.state == "up" for one in status.sites),
            "Waiting for all sites to be up",
            120.0,
        )

    def delay(self, delays_s: Mapping[str, Mapping[str, float]]) -> None:
        """From now on messages between sites take this long, at all sites."""
        for site in self.coordinator.sites.alive():
            self.coordinator.sites.peer(site).send(Emulate(delays_s))

    def drop_all(self) -> None:
        status = self.status()
        queries = [f"DROP QUERY IF EXISTS `{name}`;" for name in reversed(list(status.reads))]
        streams = [f"DROP STREAM IF EXISTS `{name}`;" for name in status.streams]
        if queries or streams:
            self.execute("\n".join(queries + streams))
