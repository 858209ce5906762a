"""What goes over a link: the schema of a stream's batches, the few numbers beside each batch,
and batches compressed for standbys.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.stream.batch import BORN, EVENT_TIME, POSITION, Batch
from anabranch.stream.restart import RestartPoint, point_of

PACKED = pa.schema([pa.field("packed", pa.binary())])
Unpack = Callable[[Batch[pa.RecordBatch]], Batch[pa.RecordBatch]]
_ZLIB_LEVEL = 6  # zlib's own default, as in the paper's measurements


def pack(data: pa.RecordBatch, codec: str) -> pa.RecordBatch:
    """The rows, with all their values, as one value of one column; an empty batch stays without
    rows.
    """
    blobs = [compress(data.serialize(), codec)] if data.num_rows else []
    return pa.RecordBatch.from_arrays([pa.array(blobs, pa.binary())], schema=PACKED)


def unpacker(
    schema: pa.Schema, codec: str
) -> Callable[[Batch[pa.RecordBatch]], Batch[pa.RecordBatch]]:
    """A function that undoes `pack` on the batches of a stream with this `schema`."""
    nothing = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)

    def unpack(batch: Batch[pa.RecordBatch]) -> Batch[pa.RecordBatch]:
        if not batch.rows:
            return replace(batch, data=nothing)
        blob = batch.data.column(0)[0].as_buffer()
        return replace(batch, data=pa.ipc.read_record_batch(decompress(blob, codec), schema))

    return unpack


def compress(buffer: pa.Buffer, codec: str) -> bytes:
    """The compressed buffer with its size in front: Arrow's codecs need the size to undo it."""
    size: bytes = buffer.size.to_bytes(8, "little")
    if codec == "zlib":
        return size + zlib.compress(buffer, _ZLIB_LEVEL)
    return size + bytes(pa.Codec(codec).compress(buffer, asbytes=True))


def decompress(blob: pa.Buffer, codec: str) -> pa.Buffer:
    """The buffer that `compress` was given."""
    size = int.from_bytes(blob[:8].to_pybytes(), "little")
    if codec == "zlib":
        return pa.py_buffer(zlib.decompress(blob[8:], bufsize=size))
    return pa.Codec(codec).decompress(blob[8:], decompressed_size=size)


__all__ = [
    "BORN",
    "EVENT_TIME",
    "POSITION",
    "ArrowBatches",
    "apart",
    "empty_batch",
    "header",
    "read_batch",
    "record_batches",
    "wire_schema",
]

_HEADER = struct.Struct("<qqq")
LOG_CODEC = "lz4_raw"
"""It costs less than the writing that it saves."""
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def wire_schema(columns: pa.Schema) -> pa.Schema:
    """The schema on the wire. Positions are dense, so a batch carries only its first one, beside
    the columns.
    """
    times = [pa.field(EVENT_TIME, pa.int64()), pa.field(BORN, pa.int64())]
    return pa.schema([pa.field(f.name, f.type) for f in columns] + times)


def header(batch: Batch[pa.RecordBatch]) -> pa.Buffer:
    """The numbers of a batch; for a standby the restart point follows them."""
    fixed = _HEADER.pack(batch.first, batch.watermark, batch.epoch)
    point = json.dumps(asdict(batch.point)).encode() if batch.point else b""
    return pa.py_buffer(fixed + point)


def read_batch(stream: str, data: pa.RecordBatch, metadata: pa.Buffer) -> Batch[pa.RecordBatch]:
    first, watermark, epoch = _HEADER.unpack_from(metadata)
    return Batch(stream, first, watermark, epoch, data, _point(metadata))


def _point(metadata: pa.Buffer) -> RestartPoint | None:
    point = metadata.to_pybytes()[_HEADER.size :]
    return point_of(json.loads(point)) if point else None


class ArrowBatches:
    """Batches of Arrow data with this schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.nothing = empty_batch(schema)

    def newest(self, part: pa.RecordBatch) -> int:
        found: int = pc.max(part.column(EVENT_TIME)).as_py()
        return found

    def rows_before(self, part: pa.RecordBatch, time: int) -> int:
        later = part.column(EVENT_TIME).to_numpy() >= time
        return int(later.argmax()) if later.any() else part.num_rows

    def joined(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return pa.concat_batches(parts)

    def packed(self, parts: Sequence[pa.RecordBatch]) -> bytes:
        """All rows in the form in which a log holds them."""
        whole = parts[0] if len(parts) == 1 else self.joined(parts)
        return compress(whole.serialize(), LOG_CODEC)

    def unpacked(self, body: bytes | memoryview) -> pa.RecordBatch:
        data = decompress(pa.py_buffer(body), LOG_CODEC)
        return pa.ipc.read_record_batch(data, self.schema)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def apart(rows: Rows, nbytes: int) -> Rows:
    """`rows` that were cut from a buffer of `nbytes` bytes: a copy if they are much smaller. What
    comes over a link has all columns in one buffer, which each of them would keep in memory.
    """
    if 2 * rows.nbytes >= nbytes:
        return rows
    return rows.take(pa.array(np.arange(rows.num_rows)))


def record_batches(table: pa.Table, max_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of `table` in pieces, none empty; copied only if it is in many small chunks."""
    chunks = table.column(0).num_chunks if table.num_columns else 1
    whole = table.combine_chunks() if chunks > 1 + 2 * len(table) // max_rows else table
    return (piece for piece in whole.to_batches(max_chunksize=max_rows) if piece.num_rows)
