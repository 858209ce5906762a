"""One moment of the whole system, as typed data: what the API answers and the pages draw."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_serializer

from anabranch.link.message import plain
from anabranch.link.reports import StageReport


class View(BaseModel):
    model_config = ConfigDict(frozen=True)


class TaskView(View):
    """A task as its primary reports it. `load` is the fraction of each second that it computes."""

    name: str
    query: str
    site: str
    output: str | None
    inputs: tuple[str, ...]
    sink: str | None
    state: str
    error: str
    epoch: int
    queue: int
    rows_in: int
    rows_out: int
    rate_in: float
    rate_out: float
    p50_ms: float | None
    p99_ms: float | None
    load: float


class StreamView(View):
    name: str
    site: str
    state: str
    error: str
    rows: int
    rate: float
    kind: str = "stream"
    failed_at: float | None = None
    """By its site's clock, in seconds since 1970."""
    left_out: dict[str, int]
    """Late, skipped, shed: counted and shown, never silent."""


class LinkView(View):
    """The tuples that flow from one site to another. `round_trip_ms` is None while it is not
    measured.
    """

    sender: str
    receiver: str
    streams: tuple[str, ...]
    rate: float
    queue: int
    """Tuples that wait at the receiver."""
    round_trip_ms: float | None = None


class ProtectionView(View):
    """`batch` is b; the tuner's expectations are None where nothing is tuned yet."""

    site: str
    standby: str | None
    epoch: int
    protected: bool
    text: str
    asked: str = ""
    batch: int | None = None
    overhead: float | None = None
    recovery_s: float | None = None


class TakenView(View):
    """How the site that runs a query came to it, in seconds since 1970 by that site's clock: when
    it noticed that the primary was gone, when all had been told, and when all that the primary had
    got was processed. `asked` means that somebody moved it; then the primary was not gone.
    """

    was_at: str
    epoch: int
    asked: bool
    noticed: float | None = None
    claimed: float | None = None
    recovered: float | None = None


class StepView(View):
    """A task on the way to a query's results: its sub-deadline, and what is left of it at least."""

    task: str
    site: str
    sub_deadline_ms: float | None
    laxity_ms: float | None


class DeadlineView(View):
    deadline_ms: float
    judged: int
    late: int
    steps: tuple[StepView, ...] = ()


class PlacedView(View):
    task: str
    site: str
    why: str


class WorkerView(View):
    """`bound` is the largest error of estimates for its keys, at the query's confidence; `damaged`
    windows are still to be estimated.
    """

    query: str
    site: str
    keys: int
    bound: float | None
    protection: str
    why: str
    damaged: int


class EstimatesView(View):
    within: float
    confidence: float
    estimated: int
    recovering: bool
    workers: tuple[WorkerView, ...]
    problem: str = ""


WELL = ("running", "done", "catching up")
"""States of queries that do what they should."""


class QueryView(View):
    name: str
    site: str
    kind: str
    state: str
    reads: tuple[str, ...]
    rate_in: float
    rate_out: float
    rows_out: int
    queue: int
    p50_ms: float | None
    p99_ms: float | None
    error: str
    protection: ProtectionView | None = None
    taken: TakenView | None = None
    deadline: DeadlineView | None = None
    placed: tuple[PlacedView, ...] = ()
    estimates: EstimatesView | None = None
    stage: StageReport | None = None
    """A stage's epoch, checkpoints, offsets and the like, as its state server says them."""
    plans: str = ""
    """How Spark evaluates it."""
    home: str = ""
    """The site where it is to run, though it may not have begun there."""
    run: str = ""
    """Another one if it was dropped and created again."""

    @field_serializer("stage")
    def _stage_as_said(self, stage: StageReport | None) -> dict[str, object] | None:
        """The stage's fields, without those that are not known."""
        return plain(stage) if stage else None


class SiteView(View):
    name: str
    address: str
    pid: int
    state: str
    problem: str
    load: float
    """The part of a second that its tasks compute in a second, added up."""
    ending: str = ""
    """How its process ended, while that is started again."""
    http: str = ""
    """Where it tells its health and figures itself."""


class Snapshot(View):
    at: float
    """Seconds since 1970."""
    sites: tuple[SiteView, ...] = ()
    links: tuple[LinkView, ...] = ()
    streams: tuple[StreamView, ...] = ()
    queries: tuple[QueryView, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    bottleneck: str = ""
    """The task whose queue waits for it most; empty where nothing waits long."""

    def query(self, name: str) -> QueryView | None:
        return next((one for one in self.queries if one.name == name), None)
