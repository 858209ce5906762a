"""What a cluster has besides queries: streams, tables, running pockets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Self, TypeAlias
from uuid import uuid4

import pyarrow as pa

from anabranch.api.client import Client
from anabranch.api.queries import Relation
from anabranch.api.results import Results, Timeout, seconds
from anabranch.api.text import Text
from anabranch.api.text import name as written
from anabranch.errors import AnabranchError, ConfigError, SiteError, SourceError, TaskError
from anabranch.link.message import A, Message
from anabranch.link.messages import End, Push, Schema
from anabranch.link.wire import EVENT_TIME
from anabranch.plan.spec import Submission
from anabranch.site.programs.to_arrow import as_table
from anabranch.site.sources.open_stream import decoded, encoded

ASK_S = 30.0
AWAY_S = 30.0
"""How long a push waits for a site whose process has died: about as long as one takes to start."""
AGAIN_S = 0.2
PUSH_ROWS = 20_000
"""Rows that are sent at a time."""
Rows: TypeAlias = Iterable[Mapping[str, Any] | tuple[Any, ...]] | pa.Table | pa.RecordBatch | Any


class Table(Relation):
    """Rows that joins look things up in; it takes no window."""

    kind = "table"


class Stream(Relation):
    """A stream from outside, or, without a source, one that `push` or a pocket fills."""

    kind = "stream"

    def __init__(self, client: Client, name: str, site: str) -> None:
        super().__init__(client, name, site)
        self._writer = uuid4().hex
        self._pushes = 0

    def push(self, rows: Rows, *, timeout: Timeout = None) -> int:
        """Append rows: dicts, tuples in the order of the columns, an Arrow table, a data frame.

        Their event time is `_ts`, if all of them have it (`datetime`, ISO text or µs since 1970),
        else the moment of arrival. When this returns, the rows are on the disk of the stream's
        site. Waits up to `timeout` while the stream's readers are slow, and some seconds for a site
        that is being started again; no row is there twice because of that. Returns how many rows
        were pushed.

        >>> readings.push([{"room": "hall", "celsius": 21.5}])  # doctest: +SKIP
        """
        try:
            table = as_table(rows, self._columns)
        except TaskError as error:
            raise ConfigError(error.message, place="push(rows)", remedy=error.remedy) from None
        missing = table.column(EVENT_TIME).null_count
        if missing == len(table):
            table = table.drop_columns([EVENT_TIME])
        elif missing:
            remedy = "Give it in all rows or in none."
            raise ConfigError(
                f"{missing} rows have no {EVENT_TIME}", place="push(rows)", remedy=remedy
            )
        deadline = time.monotonic() + seconds(timeout)
        for start in range(0, len(table), PUSH_ROWS):
            self._pushes += 1
            self._push(encoded(table.slice(start, PUSH_ROWS)), start, deadline)
        return len(table)

    def _push(self, piece: str, before: int, deadline: float) -> None:
        """Pushes until it is stored. A site that was killed may have stored it without saying so:
        it knows by the number.
        """
        patience = min(deadline, time.monotonic() + AWAY_S)
        while True:
            try:
                if self._ask(Push(self.name, piece, self._writer, self._pushes)):
                    return
                if time.monotonic() > deadline:
                    raise SourceError(
                        f"{before} rows were pushed; there is no room for more yet",
                        place="push(timeout)",
                    )
            except SiteError:
                if time.monotonic() > patience or not self._comes_back():
                    raise
                time.sleep(AGAIN_S)

    def _comes_back(self) -> bool:
        """Whether the system goes on and has this stream, so that its site will be there again."""
        try:
            return self._client.find(self.name).kind == self.kind
        except AnabranchError:
            return False

    def end(self) -> None:
        """Ends the stream: no rows will follow, and queries over it come to their end."""
        self._ask(End(self.name))

    def _ask(self, message: Message[A]) -> A:
        try:
            return self._client.site(self.site).send(message, ASK_S)
        except SiteError:
            self._client.refresh()  # for the next time
            raise

    @cached_property
    def _columns(self) -> pa.Schema:
        schema = decoded(self._ask(Schema(self.name))).schema
        return schema.remove(len(schema) - 1)


class RunningPocket(Results):
    """A pocket that was submitted; its results are the tuples of its output stream."""

    site = input = ""
    output: Stream

    def __init__(self, client: Client, name: str) -> None:
        """The pocket may not be started yet."""
        self._client = client
        self.name = name

    @classmethod
    def submitted(cls, client: Client, pocket: Submission, consumer: str) -> Self:
        """A pocket that is started now, or together with all statements that are being
        collected.
        """
        running = cls(client, pocket.name)
        if client.gathered is not None:
            client.gathered.pocket(pocket, consumer, lambda: running._find(consumer))
        else:
            definition = client.submit(pocket, consumer)
            running._begin(definition.site, definition.input, definition.output, consumer)
        return running

    def _find(self, consumer: str) -> None:
        answer = self._client.execute(Text(f"DESCRIBE {written(self.name, 'name')}"))
        rows: dict[str, str] = {what: name for what, name in answer.rows}  # noqa: C416 (typed)
        self._begin(rows["site"], rows["reads"], rows["fills"], consumer)

    def _begin(self, site: str, input: str, output: str, consumer: str) -> None:
        self.site, self.input = site, input
        self.output = Stream(self._client, output, site)
        if consumer:
            self._follow(self.output.name, self.site, consumer, spare=False)

    def drop(self) -> None:
        """Stops it; the query and the stream that came with it go too, unless others read them."""
        self.close()
        self._client.execute(Text("DROP POCKET ").add(written(self.name, "drop")))

    def __repr__(self) -> str:
        return f"<pocket {self.name} at {self.site}>"
