"""What a site is a member of: a catalog, and which of its own lives this is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from anabranch.errors import SiteError
from anabranch.link.message import Order, Origin
from anabranch.process import birth


class Member:
    """`runs` says whether anything is deployed here. Only then does it matter for whom."""

    def __init__(self, name: str, runs: Callable[[], bool]) -> None:
        self.life = 0
        """The number of this process, if the coordinator has given it one."""
        self._name = name
        self._runs = runs
        self.origin = Origin()
        """The catalog that it belongs to."""
        self.started = birth(os.getpid())
        """When the process was."""

    def belongs_to(self, origin: Origin) -> None:
        """Who has taken our report is who we belong to."""
        self.origin = origin

    def check(self, order: Order[Any]) -> None:
        """Raises SiteError if another catalog's coordinator gives orders, while something runs for
        ours."""
        theirs, ours = order.origin, self.origin
        if theirs.id and ours.id and theirs.id != ours.id and self._runs():
            raise SiteError(
                f"site {self._name} runs what the system with its state in {ours.folder} has"
                f" created, and takes no orders of the one with its state in {theirs.folder}",
                remedy="Stop one of the two systems, or end the site and start it again.",
            )
