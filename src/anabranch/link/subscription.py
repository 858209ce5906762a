"""Keeps one inlet fed from an outlet, here or elsewhere, through broken connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol

from anabranch.errors import AnabranchError, ProtocolError, SiteError, StaleEpoch
from anabranch.runtime.base import Runtime
from anabranch.runtime.pipe import Incoming
from anabranch.stream.batch import END_WATERMARK, Batch, P

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0


class Receiver(Protocol[P]):
    """The place where a subscription puts what comes: a LiveInlet, or a standby's collection of
    inputs.
    """

    @property
    def stream(self) -> str: ...
    @property
    def received(self) -> int: ...
    async def space(self) -> None: ...
    async def offer(self, batch: Batch[P]) -> None: ...
    def close(self) -> None: ...


class Subscription(Generic[P]):
    """Follows a stream from where its receiver stands, and again after every break.

    `connect(after)` opens the stream anew; it is broken if it brings not even a heartbeat for
    `silence_s`. It tries again if the site is away, or if its epoch is over: the next try goes to
    its successor. Other errors, such as a gap, cannot be cured that way: `on_failure` gets them and
    the subscription ends.
    """

    def __init__(
        self,
        runtime: Runtime,
        receiver: Receiver[P],
        connect: Callable[[int], Incoming[Batch[P]]],
        on_failure: Callable[[AnabranchError], None],
        silence_s: float | None = None,
    ) -> None:
        self.problem: str = ""
        """Why the stream cannot be followed at the moment; empty when it can."""
        self.breaks = 0
        self._runtime = runtime
        self._receiver = receiver
        self._connect = connect
        self._on_failure = on_failure
        self._silence_s = silence_s
        self._stopped = False
        self._offering = False
        self._elsewhere = False
        self._wake = runtime.signal()
        self._open: Incoming[Batch[P]] | None = None
        self._coroutine = runtime.supervise(f"link of {receiver.stream}", self._run)

    @property
    def done(self) -> bool:
        return self._coroutine.done

    def reroute(self) -> None:
        """The stream is produced elsewhere now: follows it there, at once."""
        self._elsewhere = True
        if self._open:
            self._open.close()
        self._wake.notify()

    def close(self) -> None:
        """Ends the subscription. Nothing is offered any more, except what is being offered just
        now.
        """
        self._stopped = True
        self._receiver.close()
        if not self._offering:
            self._coroutine.cancel()

    async def join(self) -> None:
        await self._coroutine.join()

    async def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._stopped:
            before = self._receiver.received
            try:
                if await self._feed():
                    return
                retry_s = FIRST_RETRY_S
            except (SiteError, StaleEpoch) as error:
                if self._receiver.received > before:
                    retry_s = FIRST_RETRY_S
                self.problem = error.message
            except Exception as error:
                self._on_failure(_explained(error, self._receiver.stream))
                return
            self.breaks += 1
            if not self._elsewhere:
                await self._wake.wait(retry_s)
            retry_s = FIRST_RETRY_S if self._elsewhere else min(2 * retry_s, LAST_RETRY_S)

    async def _feed(self) -> bool:
        """Follows the stream until it breaks (False) or ends (True)."""
        self._elsewhere = False
        connection = self._open = self._connect(self._receiver.received)
        try:
            while True:
                batch = await connection.receive(self._silence_s)
                if batch is None or self._elsewhere:
                    return False
                self.problem = ""
                await self._offer(batch)
                if batch.watermark == END_WATERMARK or self._stopped:
                    return True
                await self._receiver.space()
        finally:
            self._open = None
            connection.close()

    async def _offer(self, batch: Batch[P]) -> None:
        self._offering = True
        try:
            await self._receiver.offer(batch)
        finally:
            self._offering = False


def _explained(error: Exception, stream: str) -> AnabranchError:
    if isinstance(error, AnabranchError):
        return error
    return ProtocolError(f"link of stream {stream} failed: {type(error).__name__}: {error}")
