"""What a coordinator says of the whole system; `anabranch status --json` shows it by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from anabranch.coordinator.approximate.report import ApproximationReport
from anabranch.coordinator.placement.moves import PlacementReport
from anabranch.coordinator.protection.report import ProtectionReport
from anabranch.link.reports import (
    Delay,
    DiskReport,
    SiteReport,
    SourceReport,
    SpilledReport,
    TaskReport,
)
from anabranch.runtime.troubles import TroubleReport


@dataclass(frozen=True, slots=True)
class State:
    """The state of a query or pocket in one word or two, and what it waits for, if there is
    something to say."""

    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatus(SiteReport):
    """A site that answers: it is `up`, or `stuck` and says why. `held` is what it has not been
    given again, `missing` what the catalog has there and does not run there, `lost` what of that no
    other site has either, and `ghosts` what runs there though it was dropped."""

    state: str
    held: dict[str, Delay]
    missing: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    ghosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: SiteReport) -> SiteStatus:
        """As it says itself. It answers, but perhaps its Spark does not."""
        said = {one.name: getattr(report, one.name) for one in fields(SiteReport)}
        return cls(**said, state="stuck" if report.problem else "up", held={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentSite:
    """A site that does not answer: it is `unreachable`, or `starting` still. Where it was last, and
    the number of its process then."""

    site: str
    address: str
    pid: int
    tasks: tuple[TaskReport, ...] = ()
    sources: tuple[SourceReport, ...] = ()
    state: str
    problem: str
    held: dict[str, Delay]
    missing: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    ghosts: tuple[str, ...] = ()
    http: ClassVar[str | None] = None
    troubles: ClassVar[tuple[TroubleReport, ...]] = ()
    abandoned: ClassVar[int] = 0
    spilled: ClassVar[dict[str, SpilledReport]] = {}
    disk: ClassVar[DiskReport | None] = None
    round_trips: ClassVar[dict[str, float]] = {}


AnySite = SiteStatus | SilentSite


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """All sites, and all that the catalog has, by name."""

    address: str
    placement: dict[str, PlacementReport]
    """Operator → why it is where it is."""
    deadlines: str
    """What is wrong with the deadlines that were promised."""
    approximations: dict[str, ApproximationReport]
    endings: dict[str, str]
    """Site that is away → how its process ended."""
    troubles: tuple[TroubleReport, ...]
    pid: int
    states: dict[str, State]
    """Query or pocket, as its user knows it → how it is."""
    sites: tuple[AnySite, ...]
    homes: dict[str, str]
    """Query or pocket → the site where it is to run."""
    runs: dict[str, str]
    """Query → which creation of it this is."""
    streams: tuple[str, ...]
    tables: tuple[str, ...]
    pockets: tuple[str, ...]
    protection: dict[str, ProtectionReport]
    """Task → who runs it and who stands by."""
    standbys: dict[str, str]
    """Query or pocket → its STANDBY clause."""
    reads: dict[str, tuple[str, ...]]
    workers: dict[str, tuple[str, ...]]
    """Approximate query → its workers."""
    ends: dict[str, tuple[str, ...]]
    """Query, pocket or its stream → what it ends with."""

    def tasks(self) -> Iterator[TaskReport]:
        """At all sites, those that stand by included."""
        return (task for site in self.sites for task in site.tasks)

    def sources(self) -> Iterator[SourceReport]:
        return (source for site in self.sites for source in site.sources)
