"""What is compressed comes out as it went in, to the byte of every value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.link.wire import PACKED, pack, unpacker
from anabranch.stream.batch import Batch

DATA = pa.RecordBatch.from_pydict(
    {
        "n": pa.array([1, None, 3] * 500, pa.int64()),
        "x": pa.array([0.1, float("nan"), -0.0] * 500),
        "text": pa.array(["", None, "é\n"] * 500),
        "list": pa.array([[1], [], None] * 500, pa.list_(pa.int32())),
    }
)


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("rows", [slice(0, 1500), slice(7, 9), slice(0, 0)])
def test_round_trip(codec: str, rows: slice) -> None:
    data = DATA.slice(rows.start, rows.stop - rows.start)
    packed = pack(data, codec)
    assert packed.schema == PACKED
    out = unpacker(DATA.schema, codec)(Batch("S", 5, 9, 1, packed))
    assert (out.first, out.watermark, out.epoch, out.rows) == (5, 9, 1, len(data))
    assert out.data.schema == DATA.schema
    assert repr(out.data.to_pylist()) == repr(data.to_pylist())


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_it_is_smaller(codec: str) -> None:
    assert pack(DATA, codec).nbytes < DATA.nbytes / 2
