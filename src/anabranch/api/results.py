"""Reading a stream's tuples as rows, Arrow or pandas, and how they look in a notebook and at
Python's prompt.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from anabranch.api.client import Client
from anabranch.api.reader import Reader
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import ConfigError, SiteError
from anabranch.link.wire import EVENT_TIME
from anabranch.units import duration_us

if TYPE_CHECKING:
    import pandas as pd


Timeout = float | str | None
"""Seconds, or a duration such as "5s"."""
_CONNECT_S = 10.0


def reader_name() -> str:
    """A new name by which the producer of a stream knows one reader."""
    return f"reader-{uuid4().hex[:12]}"


class Results:
    """Tuples come once, in order: each method goes on where the one before has stopped. Only the
    table of all tuples, to the end, can be read again.

    They have the stream's columns, `_pos` (position) and `_ts` (event time in µs). Without `limit`
    and `timeout`, all of these go on until the stream ends. An error of the query is raised when
    all results before it have been given.
    """

    _client: Client
    _reader: Reader | None = None
    _whole: pa.Table | None = None
    """What was read to the end at once."""

    def _follow(self, stream: str, site: str, consumer: str, *, spare: bool) -> None:
        self._reader = Reader(self._client, stream, site, consumer, spare)
        self._client.readers.add(self._reader)
        # An object that nobody has any more cannot be read: nobody must wait for its reader.
        weakref.finalize(self, self._reader.close).atexit = False

    def batches(
        self, *, limit: int | None = None, timeout: Timeout = None
    ) -> Iterator[pa.RecordBatch]:
        """Arrow record batches as they come: at most `limit` tuples, for at most `timeout`."""
        if limit is not None and limit < 0:
            raise ConfigError(f"{limit} is no number of tuples", place="limit")
        return self._batches(math.inf if limit is None else limit, seconds(timeout))

    def _batches(self, left: float, timeout_s: float) -> Iterator[pa.RecordBatch]:
        reader, deadline = self._followed(), time.monotonic() + timeout_s
        while left > 0:
            try:
                batch = reader.next(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return
            if batch is None:
                return
            if batch.num_rows > left:
                reader.put_back(batch.slice(int(left)))
                batch = batch.slice(0, int(left))
            left -= batch.num_rows
            yield batch

    def rows(
        self, *, limit: int | None = None, timeout: Timeout = None
    ) -> Iterator[dict[str, Any]]:
        """Tuples as dicts. If a loop breaks off, the next one gets the remaining tuples."""
        for batch in self.batches(limit=limit, timeout=timeout):
            done = 0
            try:
                for row in batch.to_pylist():
                    done += 1
                    yield row
            finally:
                self._followed().put_back(batch.slice(done))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def to_arrow(
        self, *, limit: int | None = None, timeout: Timeout = None, timestamps: bool = False
    ) -> pa.Table:
        """A table. Without `limit` and `timeout` it is kept, so that another call gives the same.
        With `timestamps`, `_ts` is a timestamp (UTC) instead of a number.
        """
        if self._whole is None or limit is not None or timeout is not None:
            batches = list(self.batches(limit=limit, timeout=timeout))
            schema = self._followed().wait_for_schema(_CONNECT_S)
            if schema is None:
                raise SiteError("the site of this stream does not answer")
            table = pa.Table.from_batches(batches, schema)
            if limit is None and timeout is None:
                self._whole = table
        else:
            table = self._whole
        return _timed(table) if timestamps else table

    def to_pandas(
        self, *, limit: int | None = None, timeout: Timeout = None, timestamps: bool = False
    ) -> pd.DataFrame:
        """The same as a data frame."""
        return self.to_arrow(limit=limit, timeout=timeout, timestamps=timestamps).to_pandas()

    def close(self) -> None:
        """Stops reading: later results are not kept for us. The query goes on."""
        reader, self._reader = self._reader, None
        if reader:
            reader.close()
            reader.join()

    def _followed(self) -> Reader:
        if self._reader is None:
            raise ConfigError(
                "this is not followed, so it has no results here",
                remedy="Start it without follow=False, or use cluster.query(name).",
            )
        return self._reader


def _timed(table: pa.Table) -> pa.Table:
    at = table.column_names.index(EVENT_TIME)
    times = table.column(at).cast(pa.timestamp("us", tz="UTC"))
    return table.set_column(at, EVENT_TIME, times)


def seconds(timeout: Timeout) -> float:
    if timeout is None:
        return math.inf
    return duration_us(timeout) / 1e6 if isinstance(timeout, str) else float(timeout)


class Answers(list[Answer]):
    """The answers to a script, one for each statement."""

    def __repr__(self) -> str:
        return "\n".join(map(shown, self))

    def _repr_html_(self) -> str:
        return "\n".join(map(_html, self))


def shown(answer: Answer) -> str:
    """The answer as `anabranch sql` prints it."""
    if answer.kind != "table":
        return answer.text
    rows = [answer.columns, *answer.rows]
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(answer.columns))]
    lines = [
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([*([answer.text] if answer.text else []), *(line.rstrip() for line in lines)])


def _html(answer: Answer) -> str:
    text = f"<pre>{escape(answer.text)}</pre>" if answer.text else ""
    return text + (table(answer.columns, answer.rows) if answer.kind == "table" else "")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as HTML; its contents are shown as text."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
