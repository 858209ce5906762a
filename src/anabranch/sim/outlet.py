"""`link.outlet` without threads: the same outlet, served to followers and standbys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch.errors import AnabranchError, SiteError
from anabranch.sim.clock import Process, Signal, Steps
from anabranch.sim.network import Connection
from anabranch.sim.rows import NONE, Row, RowBatch, Rows
from anabranch.stream.batch import END_WATERMARK, Batch
from anabranch.stream.outlet import Outlet, Shipment
from anabranch.stream.restart import RestartPoint


class SimOutlet:
    """`on_ack` as in `link.outlet`; `check` is shown every tuple with its position."""

    def __init__(
        self,
        stream: str,
        process: Process,
        heartbeat: int,
        check: Callable[[str, int, tuple[Row, ...]], None],
    ) -> None:
        self.stream = stream
        self.outlet: Outlet[Rows] = Outlet(stream)
        self.standing_by = False
        self.closed = False
        self.on_ack: Callable[[int], None] = lambda position: None
        self._process = process
        self._heartbeat_ms = heartbeat
        self._check = check
        self._changed = Signal()
        self._followers: dict[str, object] = {}
        self._shippers: dict[str, object] = {}

    def append(self, rows: list[Row], watermark: int) -> int:
        if rows:
            batch = self.outlet.append(Rows(tuple(rows)), self.outlet.watermark)
            self._check(self.stream, batch.first, batch.data.rows)
        self.outlet.advance(watermark)
        self._changed.notify()
        return self.outlet.last

    def start_at(self, position: int) -> None:
        before = self.outlet
        self.outlet = Outlet(self.stream, position, before.epoch)
        self.outlet.consumers = before.consumers

    def reign(self, epoch: int, *, standing_by: bool = False) -> None:
        self.outlet.epoch = epoch
        self.standing_by = standing_by
        self._changed.notify()

    def level1(self, consumer: str, position: int, point: RestartPoint, reign: int) -> None:
        self.outlet.level1(consumer, position, point, reign)
        self.on_ack(self.outlet.acknowledged())

    def detach(self, consumer: str) -> None:
        self.outlet.detach(consumer)
        self._changed.notify()
        self.on_ack(self.outlet.acknowledged())

    def claim(self, consumer: str, epoch: int) -> tuple[int, RestartPoint | None]:
        self._serves()
        self.outlet.rule(consumer, epoch)
        self._followers.pop(consumer, None)
        self._changed.notify()
        return self.standing(consumer)

    def standing(self, consumer: str) -> tuple[int, RestartPoint | None]:
        known = self.outlet.consumers.get(consumer)
        if known is None:
            raise SiteError(f"stream {self.stream} keeps nothing for {consumer}")
        return max(known.released, self.outlet.released), known.restart

    def close(self) -> None:
        self.closed = True
        self._changed.notify()

    def _serves(self) -> None:
        if self.standing_by:
            raise SiteError(f"this site stands by for stream {self.stream}")

    # -- followers -------------------------------------------------------------------------------

    def follow(self, connection: Connection, consumer: str, after: int, epoch: int) -> None:
        try:
            self._serves()
            self.outlet.rule(consumer, epoch)
        except AnabranchError as error:
            connection.send(error)
            return
        me = self._followers[consumer] = object()
        self._process.spawn(self._follow(connection, consumer, after, me))

    def _follow(self, connection: Connection, consumer: str, after: int, me: object) -> Steps:
        told: int | None = None
        while not connection.gone:
            try:
                batch = self.outlet.read(after)
                if batch is None and self.outlet.watermark == told and not self.closed:
                    yield self._changed, self._heartbeat_ms
                    batch = self.outlet.read(after)
            except AnabranchError as error:
                connection.send(error)
                return
            if self.closed or self._followers.get(consumer) is not me:
                break
            batch = self._beat(after) if batch is None else self._newest(batch)
            self.outlet.sent(consumer, batch.last)
            connection.send(batch)
            after, told = batch.last, batch.watermark
            if told == END_WATERMARK:
                break
        connection.send(None)

    def _newest(self, batch: RowBatch) -> RowBatch:
        if batch.last < self.outlet.last:
            return replace(batch, more=True)
        return replace(batch, watermark=self.outlet.watermark)

    def _beat(self, after: int) -> RowBatch:
        return Batch(self.stream, after + 1, self.outlet.watermark, self.outlet.epoch, NONE)

    # -- standbys --------------------------------------------------------------------------------

    def ship(
        self, connection: Connection, consumer: str, after: int, epoch: int, batch: int
    ) -> None:
        try:
            self._serves()
            self.outlet.back_up(consumer, epoch, batch, after)
        except AnabranchError as error:
            connection.send(error)
            return
        me = self._shippers[consumer] = object()
        self._process.spawn(self._ship(connection, consumer, after, epoch, me))

    def _ship(
        self, connection: Connection, consumer: str, after: int, epoch: int, me: object
    ) -> Steps:
        clock = self._process.clock
        while not connection.gone and self._shippers[consumer] is me:
            deadline = clock.now + self._heartbeat_ms
            try:
                shipment = self.outlet.due(consumer, epoch)
                while shipment is None and not self.closed and clock.now < deadline:
                    yield self._changed, deadline - clock.now
                    if self._shippers[consumer] is not me:
                        break
                    shipment = self.outlet.due(consumer, epoch)
            except AnabranchError as error:
                connection.send(error)
                return
            if self.closed or self._shippers[consumer] is not me:
                break
            if shipment is None:
                watermark, point = self.outlet.heartbeat(consumer)
                batch = replace(self._beat(after), watermark=watermark, point=point)
            else:
                batch = _whole(shipment)
            connection.send(batch)
            after = batch.last
        connection.send(None)


def _whole(shipment: Shipment[Rows]) -> RowBatch:
    rows = tuple(row for batch in shipment.batches for row in batch.data.rows)
    newest = shipment.batches[-1]
    return replace(newest, first=shipment.after + 1, data=Rows(rows), point=shipment.point)
