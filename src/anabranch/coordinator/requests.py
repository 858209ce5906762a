"""All requests of users and their programs to a coordinator: a message each, with its answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.coordinator.base.reports import Replan, Sample, SystemStatus
from anabranch.coordinator.scripts.replies import Answer
from anabranch.link.message import Message
from anabranch.plan.spec import Submission


@dataclass(frozen=True, slots=True)
class AskStatus(Message[SystemStatus], action="status"):
    """Asks how the whole system is."""


@dataclass(frozen=True, slots=True)
class Execute(Message[tuple[Answer, ...]]):
    """Carries out a script. `wait` is the time to wait for sites that are being started. `readers`
    maps each new query to the consumer that will follow it from its first tuple on.
    """

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
    """A pocket that was started: the stream that it reads, the one that it fills, and which of
    these came with it.
    """

    name: str
    site: str
    input: str
    output: str
    made: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submit(Message[Submitted]):
    """Starts a pocket. `reader` is going to follow its output; empty if nobody is."""

    pocket: Submission
    base: str
    reader: str = ""
    wait: bool = True


@dataclass(frozen=True, slots=True)
class MoveQuery(Message[str], action="move"):
    """Moves a query to another site; the answer is its former site."""

    query: str
    site: str


@dataclass(frozen=True, slots=True)
class ReplanAll(Message[Replan], action="replan"):
    """Places again what runs; with `dry_run` only says what would move."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Samples(Message[tuple[Sample, ...]]):
    """Asks for the measurements of the network, the oldest first."""


@dataclass(frozen=True, slots=True)
class Picture(Message[str]):
    """Asks for a drawing of what runs, on its sites."""


@dataclass(frozen=True, slots=True)
class MakeBackup(Message[dict[str, int]], action="backup"):
    """Makes a backup of the whole system in a folder of the coordinator's machine; the answer is
    the bytes of each site.
    """

    folder: str


@dataclass(frozen=True, slots=True)
class Stop(Message[None]):
    """Ends everything that was started here."""
