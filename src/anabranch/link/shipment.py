"""What goes to standbys: as one batch, and how many bytes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch.stream.batch import Batch
from anabranch.stream.outlet import Shipment

_NEW = 0.25


@dataclass
class Traffic:
    """Bytes sent to primary consumers and to standbys: as they are, and as they went over the wire
    once compressed."""

    primary: int = 0
    shipped: int = 0
    packed: int = 0
    tuples: int = 0
    ratio: float = 1.0
    """Of compression, over the last few shipments: it varies with their size."""

    def sent(self, batch: Batch[pa.RecordBatch]) -> None:
        self.primary += batch.data.nbytes if batch.rows else 0

    def shipped_as(self, batch: Batch[pa.RecordBatch], nbytes: int) -> None:
        if batch.rows:
            ratio, weight = nbytes / batch.data.nbytes, _NEW if self.tuples else 1.0
            self.ratio += weight * (ratio - self.ratio)
            self.shipped += batch.data.nbytes
            self.packed += nbytes
            self.tuples += batch.rows


def whole(shipment: Shipment[pa.RecordBatch]) -> Batch[pa.RecordBatch]:
    """As one batch: compression and the standby's task fare better with it."""
    newest = shipment.batches[-1]
    data = pa.concat_batches([batch.data for batch in shipment.batches])
    return replace(newest, first=shipment.after + 1, data=data, point=shipment.point)
