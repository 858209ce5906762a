"""Compression of what is shipped to standbys: a batch as one blob."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from anabranch.stream.batch import Batch

PACKED = pa.schema([pa.field("packed", pa.binary())])
Unpack = Callable[[Batch[pa.RecordBatch]], Batch[pa.RecordBatch]]
_ZLIB_LEVEL = 6  # zlib's own default, as in the paper's measurements


def pack(data: pa.RecordBatch, codec: str) -> pa.RecordBatch:
    """Rows, nulls and all, as one value of one column; an empty batch stays without rows."""
    blobs = [compress(data.serialize(), codec)] if data.num_rows else []
    return pa.RecordBatch.from_arrays([pa.array(blobs, pa.binary())], schema=PACKED)


def unpacker(
    schema: pa.Schema, codec: str
) -> Callable[[Batch[pa.RecordBatch]], Batch[pa.RecordBatch]]:
    """Undoes `pack` on the batches of a stream with this `schema`."""
    nothing = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)

    def unpack(batch: Batch[pa.RecordBatch]) -> Batch[pa.RecordBatch]:
        if not batch.rows:
            return replace(batch, data=nothing)
        blob = batch.data.column(0)[0].as_buffer()
        return replace(batch, data=pa.ipc.read_record_batch(decompress(blob, codec), schema))

    return unpack


def compress(buffer: pa.Buffer, codec: str) -> bytes:
    """The size in front: Arrow's codecs want to know it to undo it."""
    size: bytes = buffer.size.to_bytes(8, "little")
    if codec == "zlib":
        return size + zlib.compress(buffer, _ZLIB_LEVEL)
    return size + bytes(pa.Codec(codec).compress(buffer, asbytes=True))


def decompress(blob: pa.Buffer, codec: str) -> pa.Buffer:
    """What `compress` was given."""
    size = int.from_bytes(blob[:8].to_pybytes(), "little")
    if codec == "zlib":
        return pa.py_buffer(zlib.decompress(blob[8:], bufsize=size))
    return pa.Codec(codec).decompress(blob[8:], decompressed_size=size)
