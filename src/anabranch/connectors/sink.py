"""What every sink is: a place outside where the tuples of one stream go, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.connectors.options import Connector, undefined
from anabranch.errors import Fenced, SinkBehind
from anabranch.plan.catalog import Once
from anabranch.plan.spec import ORDERED


@dataclass(frozen=True)
class SinkContext:
    """`schema` holds the query's columns, then `_pos` and `_ts` (int64)."""

    query: str
    schema: pa.Schema
    options: Mapping[str, Any]
    base: Path
    spark: Callable[[], SparkSession]
    run: str = ""
    """Which creation of the query this is: the same after a recovery, another one when the query
    was dropped and created anew. Empty if unknown."""
    resume: bool = False
    """The query goes on after a failure: `open` keeps what it has written."""
    once: Once | None = None
    """What a result is known by, if others may have written an estimate of it."""


@dataclass(frozen=True)
class Beginning:
    """The right with which a sink's task writes, and the position after which it goes on."""

    epoch: int = 0
    """Within a run the task of a later epoch has the right to write, or of two that are of one
    epoch the one that opens last."""
    after: int = 0
    """Nobody keeps the query's tuples up to this position any more: they were acknowledged."""
    without: tuple[int, int] = (0, 0)
    """The first and last position of results that a person has said may be missing."""

    def goes_on_after(self, held: int) -> int:
        """The position after which a sink goes on that holds results up to `held`: results that are
        given up count as held.
        """
        first, last = self.without
        return last if first <= held + 1 <= last else held


ANEW = Beginning()


class Sink(Connector):
    """A place outside where the tuples of one stream go. The class declares by the attributes below
    what the sink can do; nobody looks for methods.
    """

    resumable: ClassVar[bool] = False
    """It knows what it has (`written`), so that nothing is written twice after a recovery: it is
    given only what comes after that. A query with another sink cannot go on where it was."""
    shared: ClassVar[bool] = False
    """Every site can write to it, and one alone does: whoever opens it fences off who wrote before.
    Such a sink goes where its query goes; any other stays where it is."""
    deferred: ClassVar[bool] = False
    """It takes rows before they are there for good (`settle`)."""
    lasting: ClassVar[bool] = True
    """What is written stays. A query may go on with a sink of which nothing does, as a terminal."""

    def __init__(self, context: SinkContext) -> None:
        """Checks options and that the place can be written to; raises ConfigError or SinkError.
        Nothing is created yet.
        """

    @classmethod
    def lacking(cls) -> list[str]:
        promised = ["written"] * cls.resumable + ["settle"] * cls.deferred
        return undefined(cls, Sink, ["open", "write", "close", *promised])

    def check_own(self) -> None:
        """Raises ConfigError if something exists there that the query has not written, and nobody
        has said that it may be replaced.
        """

    def check_new(self) -> str:
        """Checks the place of a query that a person creates: raises ConfigError if something of an
        earlier query is there and nobody has said what becomes of it. Returns what the person
        should know of it, or an empty text.
        """
        return ""

    def open(self, begin: Beginning = ANEW) -> None:
        """Creates or truncates what is written to. A `shared` sink fences off the writer before, or
        raises Fenced if another has a later right to write.
        """
        raise NotImplementedError

    def written(self) -> int | None:
        """The last position of this query that is safely written; 0 if there is none, or if the
        query did not `resume`; None if the sink does not know. Call it after `open`, which also
        ends what an earlier instance left open.
        """
        return None

    def write(self, table: pa.Table) -> None:
        """Writes all rows of `table` (columns as in `schema`), or raises SinkError and leaves what
        was there before the call.
        """
        raise NotImplementedError

    def settle(self) -> int:
        """For a sink that is `deferred`: makes whole what is due. Returns the last position up to
        which all rows survive whatever befalls the machine; later rows may have to be given again
        to another instance.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Makes everything written so far whole and visible; releases files. Calling it again does
        no harm.
        """
        raise NotImplementedError

    def abandon(self) -> None:
        """Called from another thread; waits for nothing. The running call ends soon, by an error,
        and writes nothing more, as far as the place outside lets us ensure that. After it only
        `close` is called.
        """


class Continued:
    """An open sink, with how much of its query it holds already. To open a sink that several sites
    can write fences off the writer before, so its last position is asked for after that.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._last = 0

    def open(self, begin: Beginning = ANEW) -> None:
        """Opens the sink. Raises SinkBehind if it lacks rows that nobody can send again."""
        self.sink.open(begin)
        written = self.sink.written()
        if written is None:
            self._last = 0
            return
        self._last = begin.goes_on_after(written)
        if self._last < begin.after:
            raise behind(self._last, begin.after)

    def holds(self, first: int, count: int) -> int:
        """How many of the `count` tuples from `first` on it holds."""
        return min(count, max(0, self._last + 1 - first))


def behind(held: int, acknowledged: int, place: str = "") -> SinkBehind:
    lacks = acknowledged - held
    rows = "1 row is" if lacks == 1 else f"{lacks:,} rows are"
    error = SinkBehind(
        f"the sink holds results up to position {held:,}, but those up to {acknowledged:,} were"
        f" acknowledged: {rows} missing, and nobody keeps them any more",
        place=place,
    )
    error.lacks = held + 1, acknowledged
    return error


def superseded(ours: str, theirs: str) -> bool:
    """Whether the run `theirs` was begun later than `ours`, as far as their names tell: see
    `plan.spec`.
    """
    return ours.startswith(ORDERED) and theirs.startswith(ORDERED) and theirs > ours


class Right(Protocol):
    """The last writer, as it is noted outside."""

    @property
    def run(self) -> str: ...
    @property
    def epoch(self) -> int: ...


def check_right(query: str, run: str, epoch: int, holder: Right | None, *, resume: bool) -> None:
    """Raises Fenced if the writer in `holder` has a later right to write than the task of this run
    and epoch, which is new or is to `resume`.
    """
    if holder is None:
        return
    if holder.run == run:
        if holder.epoch > epoch:
            raise fenced(query, f"another site writes since epoch {holder.epoch}")
    elif superseded(run, holder.run) or (resume and not superseded(holder.run, run)):
        raise fenced(query, "it was created anew since")


def fenced(query: str, why: str, place: str = "") -> Fenced:
    return Fenced(
        f"{query} is written by another instance: {why}",
        place=place,
        remedy="Only the newest may; this one stops.",
    )
