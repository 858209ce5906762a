"""All that users and their programs ask of a coordinator: a message each, with what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.coordinator.base.reports import Replan, Sample, SystemStatus
from anabranch.coordinator.scripts.replies import Answer
from anabranch.link.message import Message
from anabranch.plan.spec import Submission


@dataclass(frozen=True, slots=True)
class AskStatus(Message[SystemStatus], action="status"):
    """How the whole system is."""


@dataclass(frozen=True, slots=True)
class Execute(Message[tuple[Answer, ...]]):
    """`wait`: for sites that are being started. `readers`: new query → who is going to follow it
    from its first tuple on."""

    text: str
    name: str
    base: str
    wait: bool = True
    readers: dict[str, str] = field(default_factory=dict)
    unnamed: str = ""
    pockets: tuple[Submission, ...] = ()
    """Submitted with it, and deployed together."""
    pocket_readers: tuple[str, ...] = ()
    """Of each, who is going to follow its output; empty if nobody is."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A pocket that was started: what it reads and fills, and what of that came with it."""

    name: str
    site: str
    input: str
    output: str
    made: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submit(Message[Submitted]):
    """Start a pocket. `reader` is going to follow its output; empty if nobody is."""

    pocket: Submission
    base: str
    reader: str = ""
    wait: bool = True


@dataclass(frozen=True, slots=True)
class MoveQuery(Message[str], action="move"):
    """Have a query go on at another site; answered with the one it was at."""

    query: str
    site: str


@dataclass(frozen=True, slots=True)
class ReplanAll(Message[Replan], action="replan"):
    """Place again what runs; with `dry_run` only say what would move."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Samples(Message[tuple[Sample, ...]]):
    """What was measured of the network, the oldest first."""


@dataclass(frozen=True, slots=True)
class Picture(Message[str]):
    """A drawing of what runs, on its sites."""


@dataclass(frozen=True, slots=True)
class Stop(Message[None]):
    """End everything that was started here."""
