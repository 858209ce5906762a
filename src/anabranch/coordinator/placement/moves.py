"""What re-placement has found and done, and what was measured of the network for it: as data that
whoever asks for it can read without the placers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """`latency_s[m][n]` are seconds from site m to site n, half of a round trip; `rates` tuples a
    second by stream; `selectivities` tuples out per tuple in by task; `loads` the part of the time
    that a task's instances run."""

    at: float
    latency_s: dict[str, dict[str, float]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    selectivities: dict[str, float] = field(default_factory=dict)
    loads: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Moved:
    """One operator: where from and to, and if it was tried, how long its query's output paused or
    why it stayed. `why` it moves, if not to save cost."""

    task: str
    was_at: str
    site: str
    pause_ms: float | None = None
    problem: str = ""
    why: str = ""


@dataclass(frozen=True)
class Replan:
    """Costs are Σ rate · latency², of the links as they are and as they would be. `stays` says of
    operators that are not moved why; `standbys` are those that have followed."""

    before: float
    after: float
    moves: tuple[Moved, ...]
    stays: Mapping[str, str] = field(default_factory=dict)
    standbys: tuple[Moved, ...] = ()

    @property
    def saved(self) -> float:
        return 1 - self.after / self.before if self.before else 0.0

    def to_dict(self) -> dict[str, Any]:
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
