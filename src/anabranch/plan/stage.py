"""Stages: a window aggregate that reads its source itself, in parts, and shares its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Aggregate, AggregateCall, Condition
from anabranch.plan.spec import Call, Column, Secret, Spec
from anabranch.units import show_duration

MERGED = ("COUNT", "SUM", "AVG", "MIN", "MAX")
"""The functions whose partial results can be merged in any order."""

Role = Literal["whole", "part", "merge", "late"]
"""What a stream of a stage is: its results, out of the state of one server; a server that brings
its state to the global database and gives nothing; the results, out of that database; the tuples
that were late."""
LATE_COLUMN = "event_time"
"""What a late tuple's was, in µs."""


class StageInput(Spec):
    """The source that a stage reads, as its stream declares it."""

    stream: str
    columns: tuple[Column, ...]
    source: Call
    timestamp: str | None = None
    unit: str = ""
    lateness_us: int = 0
    ahead_us: int | None = None
    base: str = ""


class Stage(Spec):
    """Partial aggregates of `input`. Spark tasks that each take a range of a partition put them
    into a state that all of them share; a window's result is merged there.
    """

    input: StageInput
    conditions: tuple[Condition, ...] = ()
    aggregate: Aggregate
    role: Role = "whole"
    sites: tuple[str, ...] = ()
    """Where the servers are that have a part of the partitions each, if there are several."""
    part: int = 0
    """The number of this one."""
    keyed: bool = False
    """No key is in the partitions of two servers, it was said."""
    by_file: bool = False
    """Each file of the source is a partition."""
    late: bool = False
    """There is a stream of late tuples, too."""
    lost_us: int = 60_000_000
    """A server that is away for longer has another take its part."""
    moves: int = 0
    """How often that has happened: what a site kept of an earlier time is not this."""
    every_us: int = 1_000_000
    """Between two checkpoints."""
    memory: str = "2GB"
    """What the state may take of it, as in '500MB'; beyond that it goes to the disk."""
    backup: str | Secret = ""
    """The global database, if there is to be one: a PostgreSQL URL or the path of a file."""
    name: str = ""
    """What the state is called there."""
    why: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for EXPLAIN."""
        how = (
            "tasks read, aggregate and put"
            if self.direct
            else ("tasks read, have Spark SQL select and compute, aggregate and put")
        )
        kept = f"checkpoint every {show_duration(self.every_us)}"
        if self.backup or len(self.sites) > 1:
            kept += ", and in the global database"
        notes = [f"stage: {self.why}", f"no shuffle: {how} into the site's state", kept]
        if len(self.sites) > 1:
            notes.append(f"its partitions are dealt out to {', '.join(self.sites)}")
            notes.append(
                "no key is at two of them: results come from each, the global database is a backup"
                if self.keyed
                else "results are merged in the global database"
            )
        return tuple(notes)

    @property
    def parts(self) -> int:
        return max(1, len(self.sites))

    @property
    def direct(self) -> bool:
        """Whether nothing is computed before the aggregation: its columns are the source's."""
        used = [key.expr for key in self.aggregate.keys]
        used += [one for call in self.aggregate.calls for one in call.arguments]
        return not self.conditions and all(one.column is not None for one in used)

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """The arguments of all calls, each once; the calls refer to them by their place here."""
        return tuple(dict.fromkeys(one for call in self.aggregate.calls for one in call.arguments))


Wanted = Literal["stage", "task"]


def refusal(
    input: StageInput | None, aggregate: Aggregate, partitioned: Callable[[str], bool]
) -> str:
    """Why this cannot be a stage; empty if it can. `partitioned` says whether a source of that name
    can be read in parts, repeatedly.
    """
    if input is None:
        return "it does not read a source"
    if not partitioned(input.source.name):
        return f"a {input.source.name} source cannot be read in parts"
    if input.source.options.get("speed") not in (None, "max"):
        return "its source is replayed at a speed"
    if input.timestamp is None and input.source.options.get("event_time") != "record":
        return "its event times are those of arrival"
    if aggregate.panes.kind != "time":
        return "its windows count rows"
    if not aggregate.keys:
        return "it has no GROUP BY"
    for call in aggregate.calls:
        if reason := _unmerged(call):
            return reason
    return ""


def _unmerged(call: AggregateCall) -> str:
    if call.source or call.function.upper() not in MERGED:
        return f"{call.function} is not merged in a database"
    if call.distinct and call.function.upper() not in ("MIN", "MAX"):
        return f"{call.function}(DISTINCT …) is not merged in a database"
    if call.function.upper() == "AVG" and call.type.startswith("decimal"):
        return "AVG of decimals is not merged in a database"
    return ""
