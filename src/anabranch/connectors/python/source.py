"""A user's Python function as a source. Rows are pulled out of a slow or endless iterable
without waiting for a full batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from anabranch.connectors.formats.columns import from_arrow, from_values
from anabranch.connectors.formats.rows import by_name
from anabranch.connectors.formats.table_builder import (
    MAX_ROWS,
    ON_ERROR,
    Block,
    TableBuilder,
    locate,
    source_names,
)
from anabranch.connectors.options import TEXT, Option, split, take
from anabranch.connectors.python.functions import exception_line, import_function, user_place
from anabranch.connectors.source import Source, SourceContext
from anabranch.errors import SourceError

ENOUGH = 1_000
"""Rows that are handed over without waiting for more."""
LINGER = 0.01
"""Seconds that a row waits for company."""
MOST = 10 * ENOUGH
"""Rows that wait before the function has to."""
_POLL = 0.1


class Pump:
    """A daemon thread calls `source` and iterates over the result, since user code may block for
    any time; `batches` never does.
    """

    def __init__(self, source: Callable[[], Any], stopped: threading.Event) -> None:
        self.failure: BaseException | None = None
        """What the iterable raised. Set only after all that came before was handed over."""
        self._source = source
        self._stopped = stopped
        self._changed = threading.Condition()
        self._items: list[Any] = []
        self._rows = 0
        self._since = 0.0
        self._ended = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="python-source")

    def batches(self) -> Iterator[list[Any]]:
        """Items in order, in batches, until the iterable ends or raises or `stopped` is set."""
        self._thread.start()
        while not self._stopped.is_set():
            batch, ended = self._take()
            if batch:
                yield batch
            elif ended:
                return

    def close(self) -> None:
        """Tells the thread that nobody takes more rows; it notices at its next row."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self) -> tuple[list[Any], bool]:
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended, _POLL)
            if self._items:
                left = self._since + LINGER - time.monotonic()
                self._changed.wait_for(lambda: self._rows >= ENOUGH or self._ended, max(left, 0))
            batch, self._items, self._rows = self._items, [], 0
            self._changed.notify_all()
            return batch, self._ended

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._drain()
        except BaseException as error:
            failure = error
        with self._changed:
            self.failure = failure
            self._ended = True
            self._changed.notify_all()

    def _drain(self) -> None:
        items = iter(_rows_of(self._source()))
        for item in items:
            if not self._put(item):
                break
        if hasattr(items, "close"):
            items.close()

    def _put(self, item: Any) -> bool:
        """Puts the item. Returns False once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._rows < MOST or self._closed)
            if not self._items:
                self._since = time.monotonic()
            self._items.append(item)
            self._rows += item.num_rows if isinstance(item, (pa.RecordBatch, pa.Table)) else 1
            if self._rows >= ENOUGH or len(self._items) == 1:
                self._changed.notify_all()
            return not self._closed


def _rows_of(result: Any) -> Any:
    """An iterator over the rows. Arrow's tables and data frames are one table, not an iterable of
    column names.
    """
    if isinstance(result, pa.RecordBatchReader):
        return result
    if isinstance(result, pa.RecordBatch):
        return [result]
    return [pa.table(result)] if hasattr(result, "__arrow_c_stream__") else result


_REMEDY = "Fix the function or set on_error = 'skip'."


class PythonSource(Source):
    """The function is called once per read, with all options but these as keywords. It returns or
    yields rows: dicts (a missing key is NULL, keys not declared are ignored), tuples or lists in
    the order of the columns, with the event time last if it is not one of them, or whole Arrow
    record batches and tables. A function need not end.
    """

    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "function", TEXT, "'module:name'; the module may lie beside the script", required=True
        ),
        ON_ERROR,
    )
    others = "keyword arguments of the function"
    finite = True

    def __init__(self, context: SourceContext) -> None:
        known, self._arguments = split(self.options, context.options)
        chosen = take("python", self.options, known)
        self._name: str = chosen["function"]
        self._function = import_function(self._name, context.base)
        self._context = context
        self._fields = source_names(context)
        self._positional = _without_repetition(self._fields)
        self._rows = TableBuilder(context, chosen["on_error"], from_values, _REMEDY)
        self._tables = TableBuilder(context, chosen["on_error"], from_arrow, _REMEDY)

    def read(self) -> Iterator[pa.Table]:
        pump = Pump(lambda: self._function(**self._arguments), self._context.stopped)
        first = 1
        try:
            for batch in pump.batches():
                for run in _runs(batch):
                    yield from self._convert(run, first)
                    first += len(run)
        finally:
            pump.close()
        if pump.failure is not None and not self._context.stopped.is_set():
            raise self._failed(pump.failure)

    def _convert(self, run: Any, first: int) -> Iterator[pa.Table]:
        if isinstance(run, list):
            table = self._rows.build(self._block(run, first), self._place)
            if table.num_rows:
                yield table
            return
        names = locate(self._fields, run.column_names, self._context.timestamp, self._name)
        for offset in range(0, run.num_rows, MAX_ROWS):
            part = run.slice(offset, MAX_ROWS)
            numbers = range(first + offset, first + offset + part.num_rows)
            block = Block([part.column(index) for index in names], numbers)
            yield self._tables.build(block, self._place)

    def _block(self, rows: list[Any], first: int) -> Block:
        named: list[Mapping[str, Any]] = []
        numbers: list[int] = []
        malformed: dict[int, str] = {}
        for number, row in enumerate(rows, first):
            if isinstance(row, Mapping):
                named.append(row)
            elif isinstance(row, (tuple, list)) and len(row) == len(self._positional):
                named.append(dict(zip(self._positional, row, strict=True)))
            else:
                malformed[number] = self._complaint(row)
                continue
            numbers.append(number)
        return Block(by_name(named, self._fields), numbers, malformed)

    def _complaint(self, row: Any) -> str:
        if isinstance(row, (tuple, list)):
            names = ", ".join(self._positional)
            return f"the row has {len(row)} values for {len(self._positional)} fields ({names})"
        return f"the row is a {type(row).__name__}, not a dict, a tuple or an Arrow table"

    def _place(self, number: int) -> str:
        return f"{self._name}, row {number}"

    def _failed(self, failure: BaseException) -> SourceError:
        message = f"{self._name} raised {exception_line(failure)}"
        return SourceError(message, place=user_place(failure) or self._name)


def _runs(items: list[Any]) -> Iterator[Any]:
    """Each table by itself, and the rows between tables as lists."""
    rows: list[Any] = []
    for item in items:
        if not isinstance(item, (pa.RecordBatch, pa.Table)):
            rows.append(item)
            continue
        if rows:
            yield rows
            rows = []
        yield item
    if rows:
        yield rows


def _without_repetition(names: list[str]) -> list[str]:
    """The names with the event time's field once: it is among the columns or comes after them."""
    if len(names) > 1 and names[-1].lower() in (name.lower() for name in names[:-1]):
        return names[:-1]
    return names
