"""What a site reports of itself and of all that runs there, with each heartbeat and when it is
asked.

Keys of the JSON are the names of the fields, in their order; `anabranch status --json` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import model_validator

from anabranch.errors import ErrorReport
from anabranch.link.message import INLINE, Origin, gathered
from anabranch.link.meter import Traffic
from anabranch.plan.definitions import Running
from anabranch.runtime.troubles import TroubleReport
from anabranch.standby.cost import Load


@dataclass(frozen=True, slots=True)
class PlanReport:
    """How Spark evaluates expressions: by a plan that is `kept` or by a job, and why; and how many
    instances were evaluated by each.
    """

    plan: str
    why: str
    kept: int
    jobs: int


@dataclass(frozen=True, slots=True)
class PocketReport:
    """The rows that a pocket skipped, how often it was begun again, and the newest traceback."""

    skipped: int
    restarts: int
    traceback: str


@dataclass(frozen=True, slots=True)
class Delay:
    """Why something does not go on, for how long so far, and whether that may pass by itself."""

    reason: str
    passes: bool
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport:
    """The batch size of one input of a standby: why it was chosen, which limits it breaks, its
    expected cost, and the load that this follows from. `measured` means that releases were
    measured, not assumed.
    """

    stream: str
    batch: int
    why: str
    measured: bool
    broken: tuple[str, ...]
    overhead: float
    recovery_s: float
    worst_recovery_s: float
    process_s: float
    machine_s: float
    """The longest recovery if the primary's process dies, and if its machine does."""
    load: Load


@dataclass(frozen=True, slots=True)
class Noticed:
    """The time until the death of the primary's process is noticed, and that of its machine."""

    process_s: float
    machine_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyReport:
    """The report of a task that stands by, or has stood by before it took over from `primary`."""

    guard: str
    """standby → claiming → primary, or retired."""
    protects: bool
    """It could take over now."""
    batch: int
    tuning: tuple[TuningReport, ...]
    codec: str | None
    primary: str
    noticed: Noticed
    kept_inputs: int
    jumps: int
    received: tuple[int, ...]
    beaten: float
    timeline: dict[str, float]
    """What was noticed, claimed and recovered when, by the clock of the site."""
    asked: bool
    """Somebody had it take over, though the primary may have been well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """The state of a task: what it takes in memory, and how it is kept. How often it was since the
    task began there, and of the last time how large it is, how long ago that was, how long it took,
    why it was due, and up to where the inputs are in it. It is due when what upstream holds for the
    task is more than `limit_bytes`, or to replay it would take longer than `limit_replay_s`."""

    count: int
    nbytes: int
    memory_bytes: int
    age_s: float | None
    took_s: float
    why: str
    inputs: tuple[int, ...]
    limit_bytes: int
    limit_replay_s: float
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """A task at one site. Its counts begin at its start there; `position` is that of its newest
    output, or of a sink its newest input, since the query began.
    """

    name: str
    query: str
    site: str
    inputs: tuple[str, ...]
    output: str | None
    state: str
    role: str
    epoch: int
    error: ErrorReport | None
    cut_off: bool
    sink: str | None
    queue: int
    position: int
    watermark: int | None
    plans: tuple[PlanReport, ...]
    pocket: PocketReport | None
    instances: int
    rows_in: int
    rows_out: int
    rate_in: float
    rate_out: float
    fixed_ms: float
    per_tuple_us: float
    p50_ms: float | None
    p99_ms: float | None
    deadline_ms: float | None
    sub_deadline_ms: float | None
    laxity_ms: float | None
    judged: int
    late: int
    overran: int
    away: Delay | None
    """What its sink writes to takes nothing for now."""
    problem: str
    breaks: int
    standby: StandbyReport | None = field(default=None, metadata=INLINE)
    born: int = 0
    snapshot: SnapshotReport | None = None
    """None if it holds nothing that would have to be kept."""

    _gathered = model_validator(mode="before")(gathered("standby", "guard"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """The state of a stage, as far as it is known: None means unknown. `released` holds the end of
    the last window that is never needed again, and the number of results up to it.
    """

    offsets: dict[str, int] | None = None
    watermark: int | None = None
    epoch: int | None = None
    flushed: int | None = None
    flush_s: float | None = None
    slices: int | None = None
    partials: int | None = None
    rows: int | None = None
    released: tuple[int, int] | None = None
    backup_behind: int | None = None
    backup_problem: str | None = None
    saved: bool | None = None
    end: int | None = None
    ended: bool | None = None
    servers: int | None = None
    restarts: int | None = None
    combines: bool | None = None


@dataclass(frozen=True, slots=True)
class SourceNews:
    """What a source knows of its tuples that its reader cannot."""

    late: int
    skipped: int
    stage: StageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """A stream from outside, a table, or a stream that programs fill. While a stream is read again,
    `replayed` of `to_replay` tuples are there already.
    """

    stream: str
    site: str
    state: str
    finite: bool
    error: ErrorReport | None
    failed_at: float | None
    """By the site's clock, in seconds since 1970."""
    problem: str
    rows: int
    newest: int | None
    """The greatest event time so far."""
    late: int
    skipped: int
    shed: int
    replayed: int
    to_replay: int
    rate: float
    stage: StageReport | None = None
    born: int = 0
    problem_s: float | None = None
    """For how long there has been a problem."""

    @property
    def left_out(self) -> dict[str, int]:
        """The tuples that were left out, by the reason, if there are any."""
        reasons = {"late": self.late, "skipped": self.skipped, "shed": self.shed}
        return {why: count for why, count in reasons.items() if count}


@dataclass(frozen=True, slots=True)
class StateFolderReport:
    """The folder that a site keeps its state in: its identity, and where it is."""

    id: str
    place: str


@dataclass(frozen=True, slots=True)
class SpilledReport:
    """The part of a stream that is on the disk, and how many tuples each consumer has not been
    sent.
    """

    bytes: int
    behind: dict[str, int]
    left_s: dict[str, float] = field(default_factory=dict)
    """How long those of them that catch up still take, if they go on as they do."""
    keep: str = ""
    """What is kept for those who come later."""


@dataclass(frozen=True, slots=True)
class DiskReport:
    """The bytes that streams take on a site's disk, and may take."""

    used: int
    total: int
    let_go: int = 0
    """Tuples that have gone from it before their time, for want of room."""
    lets_go: bool = False
    """What is kept for those who come later goes rather than that a source waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReport:
    """All that runs at a site, and who produces what as far as it knows."""

    site: str
    tasks: tuple[TaskReport, ...]
    sources: tuple[SourceReport, ...]
    producers: dict[str, tuple[str, int]]
    """Stream → the site that produces it, and in which epoch."""
    troubles: tuple[TroubleReport, ...]
    kept: dict[str, tuple[int, int]]
    """Stream → tuples and bytes that are kept for its consumers."""
    spilled: dict[str, SpilledReport] = field(default_factory=dict)
    """Stream → what of it is on the disk, if anything."""
    disk: DiskReport | None = None
    consumers: dict[str, tuple[str, ...]]
    """Stream → the tasks that it is kept for."""
    traffic: dict[str, Traffic]
    seen: int = 0
    """The greatest number of a coordinator's that is known here."""
    origin: Origin = field(default_factory=Origin)
    life: int = 0
    started: str = ""
    protocol: int = 0
    version: str = "of before"
    address: str
    http: str | None
    problem: str
    abandoned: int
    """Threads of its JVM that hang and are left alone."""
    pid: int
    round_trips: dict[str, float]
    """Other site → seconds."""
    bandwidth: dict[str, float] = field(default_factory=dict)
    """Other site → bytes a second to there, of those that it was measured to."""
    speed: float = 1.0
    """How quick its processor is; sites are compared by it."""
    folder: StateFolderReport | None

    def running(self) -> Iterator[Running]:
        for source in self.sources:
            yield Running("source", source.stream, source.born)
        for task in self.tasks:
            yield Running("task", task.name, task.born)
