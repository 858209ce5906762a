"""What a reading asks of whoever drives it. It waits for nothing itself, so that the same reading
runs in a thread of a process and in a simulation."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Pause:
    """To go on after so long."""

    seconds: float


@dataclass(frozen=True)
class Room:
    """To go on when the outlet has room."""


@dataclass(frozen=True)
class Next:
    """The next of these; None at their end. What that raises is raised where it was asked for."""

    tables: Iterator[Any]


Need: TypeAlias = Pause | Room | Next
Steps: TypeAlias = Generator[Need, Any, None]
"""Closed where it is when nobody wants it to go on."""
