"""Pulls rows out of a slow or endless iterable without waiting for a full batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

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
