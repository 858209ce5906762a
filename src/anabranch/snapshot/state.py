"""The state of a task, in pieces: what no longer changes is written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Piece:
    """`of` stands for its content, which never changes: the same object always means the same
    bytes. They are made when they are needed, perhaps by another thread.
    """

    of: object
    to_bytes: Callable[[], bytes]
    written: Callable[[], None] = lambda: None
    """Called once they are kept: they are not asked for again."""


@dataclass(frozen=True, slots=True)
class State:
    """All that later results depend on. The `notes` can be written as JSON."""

    notes: Mapping[str, Any]
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class KeptPieces:
    """A state that was read back: the pieces' bytes, in their order."""

    notes: Mapping[str, Any]
    pieces: Sequence[bytes]

    def as_state(self) -> State:
        """The state, to be kept elsewhere as well."""
        return State(self.notes, [Piece(one, lambda one=one: one) for one in self.pieces])  # type: ignore[misc]
