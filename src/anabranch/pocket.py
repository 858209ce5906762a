"""WorkerPocket: a user's program that takes part in the streams.

    class FireAlarm(Pocket):
        query = "SELECT room, Temp FROM readings WHERE Temp > 50"
        output = "CREATE STREAM alarm (message STRING)"

        def row(self, row):
            yield {"message": f"fire in {row['room']}: {row['Temp']:.0f} °C"}

`anabranch submit fire_alarm.py` starts it. Once it runs it never moves, except to its standby.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal


class Pocket:
    """Define `process` (a batch at a time) or `row` (a tuple at a time)."""

    query: ClassVar[str]
    """What it reads: a SELECT or MASTER query, or the name of a stream or query."""
    output: ClassVar[str]
    """What it writes: `CREATE STREAM name (column type, …)`, or the name of such a stream."""
    site: ClassVar[str | None] = None
    """Where it must run; None leaves the choice to the system."""
    selectivity: ClassVar[float] = 1.0
    """About how many tuples it gives for each that it gets."""
    on_error: ClassVar[Literal["stop", "skip", "restart"]] = "stop"
    """When it raises: stop it; skip the batch or tuple; or make a new one and try again, three
    times in all, before it is stopped. Other queries go on in any case."""
    deterministic: ClassVar[bool] = False
    """What `row` gives depends on that row alone: not on others, nor on time or chance."""
    stateless: ClassVar[bool] = False
    """Nothing that it gives depends on the tuples before, though it may ask the world. It then has
    no state to keep, and a new object goes on after its site was killed."""
    every: ClassVar[str] = "1s"
    """When `watermark` is called: at each whole multiple of this time, counted from 1970."""
    standby: ClassVar[str | None] = None
    """How it is protected, as behind a query's STANDBY: "ON centre2 BATCH 100", or "" to leave all
    to the system. Only for a deterministic one with `row`."""

    def open(self) -> None:
        """Called once before the first tuple, at the site."""

    def process(self, batch: Any) -> Any:
        """`batch` is a Spark DataFrame of new tuples with the input's columns and `_ts` (event
        time, µs), in order. Give a DataFrame, an Arrow table, a pandas frame, rows, or None. A
        column `_ts` sets event times; without it they are that of the batch's newest tuple."""
        raise NotImplementedError

    def row(self, row: dict[str, Any]) -> Any:
        """`row` is one tuple with the input's columns and `_ts`. Give a dict or a tuple of the
        output's columns, an iterable of such, or None. Event times are that of `row`, unless a
        dict has a later `_ts`."""
        raise NotImplementedError

    def watermark(self, time: int) -> Any:
        """Called for each whole multiple of `every` since the first tuple: after all tuples with an
        event time before `time` (µs), and before all others. Returns rows as `row` does, with that
        time.
        """
        raise NotImplementedError

    def snapshot(self) -> Any:
        """All that later results depend on, if that is not simply all attributes as they can be
        pickled. Called now and then, between tuples.
        """
        return vars(self)

    def restore(self, state: Any) -> None:
        """Called after `open` when the pocket goes on after its site has ended, with the last
        result of `snapshot`. The tuples since then come again.
        """
        vars(self).update(state)

    def close(self) -> Any:
        """Called once: when the input has ended, and then its result, as of `row`, is put out; or
        when the pocket is dropped or its site stops, and then no result can follow.
        """


def by_row(pocket: type[Pocket]) -> bool:
    return pocket.row is not Pocket.row


def by_time(pocket: type[Pocket]) -> bool:
    """Whether it wants to be told of the watermark."""
    return pocket.watermark is not Pocket.watermark


def by_batch(pocket: type[Pocket]) -> bool:
    return pocket.process is not Pocket.process
