"""The messages of a site and its Spark tasks to a state server."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.link.gate import Credentials
from anabranch.link.message import Bring, Fetch, Message
from anabranch.link.peer import Peer
from anabranch.plan.spec import Spec
from anabranch.stage.offsets import OffsetRange

CALL_S = 30.0
"""Longest wait for an answer. A server that stands still is one that is gone."""
SEE_S = 60.0
"""How long a task waits at the server for those that read what comes before its range."""
MOVE_S = 120.0
"""The same for what carries many rows."""


class Address(Spec):
    """The address of a state server, and the token that it accepts."""

    port: int
    token: str

    def peer(self) -> Peer:
        where = f"127.0.0.1:{self.port}"
        return Peer("the state server", where, Credentials(self.token))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStatus:
    """The state of a state server. `released` holds the end of the last window that is never needed
    again, and the number of results up to it. The last three fields are set if there is a backup.
    """

    offsets: dict[str, int]
    """Partition → the offset before which all is in."""
    watermark: int
    epoch: int
    flushed: int
    """The epoch that is on the disk."""
    flush_s: float
    slices: int
    partials: int
    rows: int
    late: int
    skipped: int
    released: tuple[int, int]
    backup_behind: int | None = None
    """Epochs that are on the disk and not in the global database."""
    backup_problem: str | None = None
    saved: bool | None = None
    """Whether the global database has everything."""


# -- input ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginPartitions(Message[StateStatus]):
    """Tells it to know these partitions, each from its start on; known ones stay as they are."""

    starts: dict[str, int]


@dataclass(frozen=True, slots=True)
class EndPartitions(Message[None]):
    """Tells it that partitions have no more after these offsets, and that there will be no
    others.
    """

    goals: dict[str, int]


@dataclass(frozen=True, slots=True)
class TellEnds(Message[None]):
    """Tells it where the partitions of a source that goes on end at present."""

    ends: dict[str, int]


@dataclass(frozen=True, slots=True)
class FindGaps(Message[tuple[OffsetRange, ...]]):
    """Asks for the ranges up to these ends that are not in."""

    ends: dict[str, int]


@dataclass(frozen=True, slots=True)
class SeeRange(Message[int]):
    """Says that a range has been read, whose greatest event time is `newest`. The answer is the
    greatest event time before it, as soon as that is known.
    """

    range: OffsetRange
    newest: int


@dataclass(frozen=True, slots=True)
class Counts:
    """A task's counts for a range that it has read: its greatest event time, its tuples, and the
    late ones among them; rows that were left out as malformed are no tuples.
    """

    newest: int
    rows: int
    late: int
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class CountRange(Message[None]):
    """Brings the counts of a range; it comes before the partials of that range."""

    range: OffsetRange
    counts: Counts


@dataclass(frozen=True, slots=True)
class PutRange(Bring[bool]):
    """Comes with the partials of a range. The answer is whether it was new."""

    range: OffsetRange


# -- results -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DueWindows:
    """The end of the last window whose results are whole, None if there is none; and whether all
    input is in and no window is left.
    """

    status: StateStatus
    end: int | None
    ended: bool


@dataclass(frozen=True, slots=True)
class AwaitWindows(Message[DueWindows]):
    """Asks for the next windows that end after `after` and are whole; the answer comes after
    `wait_s` at the latest.
    """

    after: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class GetWindows(Fetch[None]):
    """Asks for results of the windows that end after `after` and up to `upto`, in the order (end,
    key).
    """

    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class GetState(Fetch[StateStatus]):
    """Asks for the present results of the windows that are not released yet."""


@dataclass(frozen=True, slots=True)
class ReleaseWindows(Message[None]):
    """Promises that results of windows that end at or before `upto` are never asked for again;
    there were `given` in all.
    """

    upto: int
    given: int = 0


# -- checkpoints ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteCheckpoint(Message[int]):
    """Asks for a checkpoint; the answer is the epoch that is on the disk then."""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint(Message[None]):
    """Tells it to bring the global database up to the last checkpoint."""


@dataclass(frozen=True, slots=True)
class GetStatus(Message[StateStatus]):
    """Asks for the present status."""
