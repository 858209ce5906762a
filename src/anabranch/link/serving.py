"""The readers of an outlet: who follows it or is shipped to, and what each gets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Generic

from anabranch.errors import AnabranchError, Gap, SiteError
from anabranch.link.meter import Traffic
from anabranch.link.store import OutletStore, Payloads
from anabranch.runtime.base import Runtime
from anabranch.runtime.pipe import Outgoing
from anabranch.stream.batch import END_WATERMARK, Batch, P
from anabranch.stream.outlet import Due

AWAY_S = 12.0
"""Who follows and has not been heard for so long, twice the time after which acks are repeated, may
be cut off without our connection knowing it."""


class Serving(Generic[P]):
    """Serves what is in the `store`. `tell_room` is called whenever something has been sent."""

    def __init__(
        self,
        runtime: Runtime,
        store: OutletStore[P],
        payloads: Payloads[P],
        heartbeat_s: float,
        tell_room: Callable[[], None],
    ) -> None:
        self.closed = False
        self.traffic = Traffic()
        self._runtime = runtime
        self._store = store
        self._payloads = payloads
        self._heartbeat_s = heartbeat_s
        self._tell_room = tell_room
        self._followers: dict[str, object] = {}
        self._shippers: dict[str, object] = {}
        self._heard: dict[str, float] = {}
        """When those that follow were last heard."""
        self._leases: dict[str, float] = {}
        """Since when consumers with a lease do not follow; those that do have `inf`."""

    # -- who is there ----------------------------------------------------------------------------

    def there(self) -> list[str]:
        """The consumers that follow and are not silent."""
        now = self._runtime.now()
        return [one for one in self._followers if now - self._heard.get(one, now) < AWAY_S]

    def heard(self, consumer: str) -> None:
        if consumer in self._followers:
            self._heard[consumer] = self._runtime.now()

    def end_following(self, consumer: str) -> None:
        """Ends the consumer's present connection, which now serves somebody else."""
        self._followers.pop(consumer, None)
        self._heard.pop(consumer, None)

    def end_serving(self, consumer: str) -> None:
        """Ends the consumer's connection, and that to its standby."""
        self.end_following(consumer)
        self._shippers.pop(consumer, None)

    def lease(self, consumer: str) -> None:
        self._leases[consumer] = self._runtime.now()

    def end_lease(self, consumer: str) -> None:
        self._leases.pop(consumer, None)

    @property
    def leased(self) -> tuple[str, ...]:
        return tuple(self._leases)

    def expired(self, lease_s: float) -> list[str]:
        """The consumers with a lease that have not followed for this long."""
        now = self._runtime.now()
        return [one for one, since in self._leases.items() if now - since > lease_s]

    # -- following -------------------------------------------------------------------------------

    async def follow(
        self, out: Outgoing[P], consumer: str, after: int, check: Callable[[], None]
    ) -> None:
        """Sends batches after `after` as they come, and a heartbeat when none came for a while.

        Ends after the stream's last tuple, when the outlet closes, once `out` is gone, or when
        `consumer` follows again: it has lost this connection, which may not have noticed yet. In
        all other cases `out` ends with the error: what `check` raises at the beginning, or Gap if
        tuples after `after` were released.
        """
        me = object()
        try:
            check()
            self._followers[consumer] = me
            self.heard(consumer)
            if consumer in self._leases:
                self._leases[consumer] = math.inf
            await self._follow(out, consumer, after, me)
            out.end()
        except AnabranchError as error:
            out.end(error)
        except Exception:  # a bug is counted; whoever reads is not left waiting, and tries again
            out.end(SiteError(f"stream {self._store.outlet.stream} could not be sent on"))
            raise
        finally:
            if self._followers.get(consumer) is me:
                self.end_following(consumer)
                if consumer in self._leases:
                    self.lease(consumer)
                self._tell_room()

    async def _follow(self, out: Outgoing[P], consumer: str, after: int, me: object) -> None:
        told = None
        while told != END_WATERMARK:
            batch = await self._next(out, consumer, after, told, me)
            if batch is None:
                return
            self._store.outlet.sent(consumer, batch.last)
            self._tell_room()
            self.traffic.sent(batch)
            if not await out.send(batch):
                return
            after, told = batch.last, batch.watermark

    async def _next(
        self, out: Outgoing[P], consumer: str, after: int, told: int | None, me: object
    ) -> Batch[P] | None:
        """The next batch, or after a heartbeat interval an empty one with the watermark; None when
        there is nobody to send to any more. A consumer that died while we waited for a batch was
        not sent it, so its successor need not catch up with it.
        """
        deadline = self._runtime.now() + self._heartbeat_s
        while self._serves(out, self._followers.get(consumer) is me):
            if batch := await self._store.read(after):
                mine = self._serves(out, self._followers.get(consumer) is me)
                return self._newest(batch) if mine else None
            left = deadline - self._runtime.now()
            if self._store.outlet.watermark != told or left <= 0:
                return self._heartbeat(after)
            await self._store.changed.wait(left)
        return None

    def _serves(self, out: Outgoing[P], mine: bool) -> bool:
        return mine and not (self.closed or out.gone)

    def _newest(self, batch: Batch[P]) -> Batch[P]:
        """The batch with what can be said of the last one only when it is sent: the watermark
        reached since it was appended.
        """
        outlet = self._store.outlet
        if batch.last < outlet.last or outlet.watermark <= batch.watermark:
            return batch
        return batch.at(outlet.watermark)

    def _heartbeat(self, after: int) -> Batch[P]:
        outlet = self._store.outlet
        nothing = self._payloads.nothing
        return Batch(outlet.stream, after + 1, outlet.watermark, outlet.epoch, nothing)

    # -- shipping --------------------------------------------------------------------------------

    async def ship(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int, check: Callable[[], None]
    ) -> None:
        """Sends the standby of `consumer`, which has all up to `after`, what is not yet released,
        in batches; and when there is none for a while, the newest restart point.

        Ends with what `check` raises at the beginning, or Superseded when the standby has been
        replaced, or is the primary now.
        """
        me = object()
        try:
            check()
            self._shippers[consumer] = me
            while shipped := await self._next_shipment(out, consumer, after, epoch, me):
                if not await out.send(shipped):
                    break
                after = shipped.last
            out.end()
        except AnabranchError as error:
            out.end(error)
        except Exception:
            out.end(SiteError(f"stream {self._store.outlet.stream} could not be shipped"))
            raise

    async def _next_shipment(
        self, out: Outgoing[P], consumer: str, after: int, epoch: int, me: object
    ) -> Batch[P] | None:
        """The next shipment; None when there is nobody to ship to any more: an old connection must
        not take tuples that the one which replaced it would miss.
        """
        deadline = self._runtime.now() + self._heartbeat_s
        while self._serves(out, self._shippers.get(consumer) is me):
            outlet = self._store.outlet
            if due := outlet.due(consumer, epoch):
                whole = await self._whole(due)
                if whole and self._store.outlet is outlet and self._shippers.get(consumer) is me:
                    outlet.shipped(consumer, epoch, due.last)
                    return whole
                continue
            left = deadline - self._runtime.now()
            if left <= 0:
                watermark, point = outlet.heartbeat(consumer)
                return replace(self._heartbeat(after), watermark=watermark, point=point)
            await self._store.changed.wait(left)
        return None

    async def _whole(self, due: Due) -> Batch[P] | None:
        """The due tuples as one batch, which serves compression and the standby's task better. None
        if some of them were released while they were read: then something else is due.
        """
        try:
            parts = await self._store.cut(due.after, due.last)
        except Gap:
            return None
        data = self._payloads.joined([part.data for part in parts])
        return replace(parts[-1], first=due.after + 1, data=data, point=due.point)
