"""The pipe that a stream's batches go through on their way from an outlet to an inlet."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from anabranch.errors import AnabranchError, SiteError
from anabranch.runtime.base import Runtime
from anabranch.stream.batch import Batch, P

C = TypeVar("C", covariant=True)


class Silence(SiteError):
    """Nothing has come for too long, not even a heartbeat."""


class Incoming(Protocol[C]):
    """The end that reads."""

    async def receive(self, seconds: float | None = None) -> C | None:
        """The next batch, or None at the end. Raises the error that it ended with, and Silence
        after this time.
        """

    def close(self) -> None:
        """Closes this end: nothing more is wanted. Calling it again does no harm."""


class Outgoing(Protocol[P]):
    """The end that writes."""

    @property
    def gone(self) -> bool:
        """Whether nobody reads any more."""

    async def send(self, batch: Batch[P]) -> bool:
        """Sends the batch once there is room for it; False if nobody wants it."""

    def end(self, error: AnabranchError | None = None) -> None:
        """Ends the pipe after what was sent."""


class Pipe(Generic[P]):
    """Both ends, in one process. It holds about `limit` bytes."""

    def __init__(self, runtime: Runtime, limit: int) -> None:
        self._closed = False
        self._limit = limit
        self._changed = runtime.signal()
        self._waiting: deque[Batch[P]] = deque()
        self._bytes = 0
        self._ended = False
        self._error: AnabranchError | None = None

    @property
    def gone(self) -> bool:
        return self._closed

    async def send(self, batch: Batch[P]) -> bool:
        while self._bytes > self._limit and not self.gone:
            await self._changed.wait()
        if self.gone or self._ended:
            return False
        self._bytes += batch.nbytes
        self._waiting.append(batch)
        self._changed.notify()
        return True

    def end(self, error: AnabranchError | None = None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.notify()

    async def receive(self, seconds: float | None = None) -> Batch[P] | None:
        while not self._waiting and not self._ended and not self.gone:
            if not await self._changed.wait(seconds):
                raise Silence(f"nothing was heard for {seconds:g} s")
        if self.gone:
            return None
        if self._waiting:
            batch = self._waiting.popleft()
            self._bytes -= batch.nbytes
            self._changed.notify()
            return batch
        if self._error:
            raise self._error
        return None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()
