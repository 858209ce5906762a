"""Keeps one inlet fed from an outlet, here or elsewhere, through broken connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import pyarrow as pa

from anabranch.errors import AnabranchError, ProtocolError, SiteError
from anabranch.link.emulation import Emulation, slowed
from anabranch.link.inlet import LiveInlet
from anabranch.stream.batch import END_WATERMARK, Batch

FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0

Batches = Iterable[Batch[pa.RecordBatch]]


class Subscription:
    """A thread that follows a stream from where its inlet stands, and again after every break.

    `follow(after, epoch)` opens the stream anew; what it returns may have a `cancel`. A site that
    is away is tried again. Anything else, such as a gap or a stale epoch, cannot be mended that
    way: `on_failure` gets it and the thread ends.
    """

    def __init__(
        self,
        inlet: LiveInlet,
        follow: Callable[[int, int], Batches],
        emulation: Emulation,
        on_failure: Callable[[AnabranchError], None],
    ) -> None:
        self.inlet = inlet
        self.problem: str = ""
        """Why the stream cannot be followed at the moment; empty when it can."""
        self.breaks = 0
        self._follow = follow
        self._emulation = emulation
        self._on_failure = on_failure
        self._stopped = threading.Event()
        self._open: Batches | None = None
        self._heard = time.monotonic()
        self._reading = False
        self._thread = threading.Thread(target=self._run, name=f"link-{inlet.stream}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
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
            except SiteError as error:
                if self.inlet.received > before:
                    retry_s = FIRST_RETRY_S
                self.problem = error.message
            except Exception as error:
                self._on_failure(_explained(error, self.inlet.stream))
                return
            self.breaks += 1
            self.inlet.expect_no_more()
            self._stopped.wait(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _feed(self) -> bool:
        """Follow the stream until it breaks (False) or ends (True)."""
        self._heard = time.monotonic()
        self._open = self._follow(self.inlet.received, self.inlet.epoch)
        if self._stopped.is_set():
            self._cancel()
        source: Batches = self._heard_from(self._open)
        if self._emulation:
            source = slowed(source, self._emulation, self._stopped)
        for batch in source:
            self.inlet.offer(batch)
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
