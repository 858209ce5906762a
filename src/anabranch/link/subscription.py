"""Keeps one inlet fed from an outlet, here or elsewhere, through broken connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import pyarrow as pa

from anabranch.errors import AnabranchError, ProtocolError, SiteError, StaleEpoch
from anabranch.link.emulation import Emulation, slowed
from anabranch.stream.batch import END_WATERMARK, Batch

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0

Batches = Iterable[Batch[pa.RecordBatch]]


class Receiver(Protocol):
    """Where a subscription puts what comes: a LiveInlet, or a standby's collection of inputs."""

    @property
    def stream(self) -> str: ...
    @property
    def received(self) -> int: ...
    def offer(self, batch: Batch[pa.RecordBatch]) -> None: ...
    def expect_no_more(self) -> None: ...
    def close(self) -> None: ...


class Subscription:
    """A thread that follows a stream from where its inlet stands, and again after every break.

    `follow(after)` opens the stream anew, over a link like `emulation()`; what it returns may have
    a `cancel`. A site that is away
    is tried again, and so is one whose reign is over: the next try goes to its successor. Anything
    else, such as a gap, cannot be mended that way: `on_failure` gets it and the thread ends.
    """

    def __init__(
        self,
        inlet: Receiver,
        follow: Callable[[int], Batches],
        emulation: Callable[[], Emulation],
        on_failure: Callable[[AnabranchError], None],
        decode: Callable[[Batch[pa.RecordBatch]], Batch[pa.RecordBatch]] = lambda batch: batch,
    ) -> None:
        self.inlet = inlet
        self.problem: str = ""
        """Why the stream cannot be followed at the moment; empty when it can."""
        self.breaks = 0
        self._follow = follow
        self._emulation = emulation
        self._on_failure = on_failure
        self._decode = decode
        self._stopped = threading.Event()
        self._elsewhere = threading.Event()
        self._open: Batches | None = None
        self._heard = time.monotonic()
        self._reading = False
        self._thread = threading.Thread(target=self._run, name=f"link-{inlet.stream}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def reroute(self) -> None:
        """The stream is produced elsewhere now: follow it there, at once."""
        self._elsewhere.set()
        self._cancel()

    def close(self) -> None:
        self._stopped.set()
        self._elsewhere.set()
        self.inlet.close()
        self._cancel()

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def check_silence(self, limit_s: float) -> None:
        """Break a connection that brought not even a heartbeat for `limit_s`."""
        if self._reading and time.monotonic() - self._heard > limit_s:
            self._cancel()

    def _cancel(self) -> None:
        cancel = getattr(self._open, "cancel", None)
        if cancel:
            cancel()

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._stopped.is_set():
            try:
                before = self.inlet.received
                if self._feed():
                    return
                retry_s = FIRST_RETRY_S
            except (SiteError, StaleEpoch) as error:
                if self.inlet.received > before:
                    retry_s = FIRST_RETRY_S
                self.problem = error.message
            except Exception as error:
                self._on_failure(_explained(error, self.inlet.stream))
                return
            self.breaks += 1
            self.inlet.expect_no_more()
            if self._elsewhere.wait(retry_s):
                self._elsewhere.clear()
                retry_s = FIRST_RETRY_S
                continue
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _feed(self) -> bool:
        """Follow the stream until it breaks (False) or ends (True)."""
        self._heard = time.monotonic()
        self._elsewhere.clear()
        self._open = self._follow(self.inlet.received)
        if self._stopped.is_set() or self._elsewhere.is_set():
            self._cancel()
        source: Batches = self._heard_from(self._open)
        if emulation := self._emulation():
            source = slowed(source, emulation, self._stopped)
        for batch in source:
            if self._elsewhere.is_set():
                return self._stopped.is_set()
            self.inlet.offer(self._decode(batch))
            if batch.watermark == END_WATERMARK:
                return True
            if self._stopped.is_set():
                return True
        return False

    def _heard_from(self, batches: Batches) -> Batches:
        """The same batches, noting when each came and whether we are waiting for the next."""
        self._reading = True
        try:
            for batch in batches:
                self._heard = time.monotonic()
                self.problem = ""
                self._reading = False
                yield batch
                self._heard = time.monotonic()
                self._reading = True
        finally:
            self._reading = False


def _explained(error: Exception, stream: str) -> AnabranchError:
    if isinstance(error, AnabranchError):
        return error
    return ProtocolError(f"link of stream {stream} failed: {type(error).__name__}: {error}")
