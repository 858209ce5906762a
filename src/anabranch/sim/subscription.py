"""`link.subscription` without threads: keeps one receiver fed through broken connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from anabranch.errors import AnabranchError, SiteError, StaleEpoch
from anabranch.sim.clock import Signal, Steps
from anabranch.sim.network import Connection
from anabranch.sim.rows import RowBatch
from anabranch.stream.batch import END_WATERMARK

if TYPE_CHECKING:
    from anabranch.sim.site import SimSite


class Receiver(Protocol):
    @property
    def received(self) -> int: ...
    def offer(self, batch: RowBatch) -> None: ...


class Subscription:
    """Follows a stream from where its receiver stands, and again after every break."""

    def __init__(
        self,
        site: SimSite,
        receiver: Receiver,
        follow: Callable[[int], Connection],
        on_failure: Callable[[AnabranchError], None],
    ) -> None:
        self._site = site
        self._receiver = receiver
        self._follow = follow
        self._on_failure = on_failure
        self._stopped = False
        self._elsewhere = False
        self._wake = Signal()
        self._open: Connection | None = None
        self.thread = site.process.spawn(self._run())

    def reroute(self) -> None:
        self._elsewhere = True
        self._wake.notify()
        if self._open:
            self._open.close()
            self._open.wake()

    def close(self) -> None:
        self._stopped = True
        self.reroute()

    def _run(self) -> Steps:
        first, last = self._site.pace.retry
        retry = first
        while not self._stopped:
            before = self._receiver.received
            try:
                if (yield from self._feed()):
                    return
                retry = first
            except (SiteError, StaleEpoch):
                if self._receiver.received > before:
                    retry = first
            except AnabranchError as error:
                self._on_failure(error)
                return
            if not self._elsewhere:
                yield self._wake, retry
            retry = first if self._elsewhere else min(2 * retry, last)

    def _feed(self) -> Steps:
        """Until the stream breaks (False) or ends (True)."""
        self._elsewhere = False
        connection = self._open = self._follow(self._receiver.received)
        try:
            while True:
                batch: RowBatch | None = yield from connection.receive(self._site.pace.silence)
                if self._elsewhere or batch is None:
                    return self._stopped
                self._receiver.offer(batch)
                if batch.watermark == END_WATERMARK:
                    return True
        except SiteError:
            if self._stopped:
                return True
            raise
        finally:
            connection.close()
