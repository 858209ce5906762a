"""A coordinator's report on the whole system; `anabranch status --json` shows it by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import ClassVar

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
class WorkerReport:
    """How many keys a worker has, the largest error of their estimates at the query's confidence,
    how it is protected and why so, and how many of its windows are still to be estimated. It has
    `drifted` if estimates have been off more often lately than was promised.
    """

    query: str
    site: str
    keys: int
    bound: float | None
    estimable: bool
    protection: str
    why: str
    drifted: bool
    damaged: int


@dataclass(frozen=True, slots=True)
class ApproximationReport:
    """The promise, the version of the model, the number of windows it was learnt from, the weight
    of a new window in it, and how many results were estimated so far.
    """

    within: float
    confidence: float
    workers: tuple[WorkerReport, ...]
    model: int
    learnt_from: int
    refresh: float | None
    estimated: int
    recovering: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProtectionReport:
    """Who runs a task and who stands by, as in an Assignment; why nobody does, and whether the
    standby could take over now.
    """

    site: str
    epoch: int
    standby: str | None
    claim: int
    stream: str
    problem: str
    protected: bool


@dataclass(frozen=True)
class Sample:
    """What was measured at a moment, or the means of a period that began `at`.

    `latency_s[m][n]` are seconds from site m to site n, half of a round trip; `bandwidth[m][n]`
    bytes a second; `rates` tuples a second by stream; `selectivities` tuples out per tuple in by
    task; `loads` the part of the time that a task's instances would run at a site of speed 1;
    `standbys` the part that those of tasks that stand by do run, and `speeds` how quick it is, by
    site."""

    at: float
    latency_s: dict[str, dict[str, float]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    selectivities: dict[str, float] = field(default_factory=dict)
    loads: dict[str, float] = field(default_factory=dict)
    standbys: dict[str, float] = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)
    bandwidth: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Moved:
    """One operator: where from and to, and if it was tried, how long its query's output paused or
    why it stayed. `why` says why it moves, if not to save cost.
    """

    task: str
    was_at: str
    site: str
    pause_ms: float | None = None
    problem: str = ""
    why: str = ""


@dataclass(frozen=True)
class Replan:
    """Costs are Σ rate · latency², with the links as they are and as they would be. `stays` says
    why operators are not moved; `standbys` are those that have followed.
    """

    before: float
    after: float
    moves: tuple[Moved, ...]
    stays: Mapping[str, str] = field(default_factory=dict)
    standbys: tuple[Moved, ...] = ()

    @property
    def saved(self) -> float:
        return 1 - self.after / self.before if self.before else 0.0

    def to_dict(self) -> dict[str, object]:
        return {
            "before": self.before,
            "after": self.after,
            "saved": self.saved,
            "moves": [asdict(one) for one in self.moves],
            "standbys": [asdict(one) for one in self.standbys],
            "stays": dict(self.stays),
        }


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """Why an operator is where it is, as a Reason says it, and as `text`."""

    vertex: str
    site: str
    cost: float
    share: float
    runner_up: str | None
    worse: float
    text: str


@dataclass(frozen=True, slots=True)
class QueryState:
    """The state of a query or pocket in one word or two, and what it waits for, if anything."""

    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatus(SiteReport):
    """A site that answers: it is `up`, or `stuck` and says why. `held` is what it has not been
    given again, `missing` what should run there and does not, `lost` those of the missing that no
    other site runs either, and `ghosts` what runs there though it was dropped.
    """

    state: str
    held: dict[str, Delay]
    missing: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    ghosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: SiteReport) -> SiteStatus:
        """The status from the site's own report. The site answers, but perhaps its Spark does
        not.
        """
        said = {one.name: getattr(report, one.name) for one in fields(SiteReport)}
        return cls(**said, state="stuck" if report.problem else "up", held={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentSite:
    """A site that does not answer: it is `unreachable`, or still `starting`. It holds the site's
    last address and process number.
    """

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
    """All sites, and everything in the catalog, by name."""

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
    states: dict[str, QueryState]
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
        """The tasks at all sites, those that stand by included."""
        return (task for site in self.sites for task in site.tasks)

    def sources(self) -> Iterator[SourceReport]:
        return (source for site in self.sites for source in site.sources)
