"""What the log of a stream takes and gives, against the disk's own pace with the same bytes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.disk.real import RealFolder
from anabranch.link.wire import ArrowBatches, wire_schema
from anabranch.log.segment import Entry
from anabranch.log.stream_log import StreamLog

ROWS = 16_384
"""Tuples of an entry: about what an outlet spills at a time."""
SYNCS = 200

Progress = Callable[[str], None]


def readings() -> pa.RecordBatch:
    """What sensors give: 72 bytes a tuple, that compress like such."""
    rng = np.random.default_rng(0)
    times = 1_700_000_000_000_000 + np.arange(ROWS) * 50
    values = {
        "sensor": pa.array([f"sensor-{n % 100}" for n in range(ROWS)]),
        "temperature": pa.array(np.round(rng.normal(20, 3, ROWS), 2)),
        "humidity": pa.array(np.round(rng.normal(50, 9, ROWS), 1)),
        "count": pa.array(rng.integers(0, 1000, ROWS)),
    }
    columns = pa.schema([(name, array.type) for name, array in values.items()])
    whole = [*values.values(), pa.array(times), pa.array(times + 900)]
    return pa.RecordBatch.from_arrays(whole, schema=wire_schema(columns))


@contextmanager
def timed(taken: dict[str, float], what: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    taken[what] = time.perf_counter() - begun


def run(progress: Progress, folder: Path, megabytes: int) -> dict[str, Any]:
    """Rates of writing and reading `megabytes` of tuples in `folder`, which is made and removed."""
    batch = readings()
    payloads = ArrowBatches(batch.schema)
    entries = max(1, megabytes * 1_000_000 // batch.nbytes)
    taken: dict[str, float] = {}
    place = folder / "bench-log"
    try:
        files = RealFolder(place)
        packed = payloads.packed([batch])
        progress("The disk alone …")
        _raw(taken, files, packed, entries)
        progress("The log …")
        _log(taken, files, payloads, batch, entries)
        progress("Small writes that are synced …")
        _syncs(taken, files)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    raw, tuples = entries * len(packed) / 1e6, entries * batch.nbytes / 1e6
    return {
        "entries": entries,
        "packed_to": len(packed) / batch.nbytes,
        "disk": {what: raw / taken[f"disk {what}"] for what in ("write", "read")},
        "log": {what: raw / taken[f"log {what}"] for what in ("write", "read")},
        "tuples": {what: tuples / taken[f"tuples {what}"] for what in ("write", "read")},
        "syncs": {what: SYNCS / taken[f"{what} syncs"] for what in ("disk", "log")},
    }


def _raw(taken: dict[str, float], files: RealFolder, packed: bytes, entries: int) -> None:
    path = files.path / "raw"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    with timed(taken, "disk write"):
        for n in range(entries):
            os.pwrite(file, packed, n * len(packed))
        os.fdatasync(file)
    with timed(taken, "disk read"):
        for n in range(entries):
            os.pread(file, len(packed), n * len(packed))
    os.close(file)
    path.unlink()


def _log(
    taken: dict[str, float],
    files: RealFolder,
    payloads: ArrowBatches,
    batch: pa.RecordBatch,
    entries: int,
) -> None:
    body = payloads.packed([batch])
    log = StreamLog(files, "bytes")
    with timed(taken, "log write"):
        for n in range(entries):
            log.append(Entry(n * ROWS + 1, ROWS, n, body))
        log.sync()
    with timed(taken, "log read"):
        assert sum(entry.rows for entry in log.read(0)) == entries * ROWS
    log.remove()
    log = StreamLog(files, "tuples")
    with timed(taken, "tuples write"):
        for n in range(entries):
            log.append(Entry(n * ROWS + 1, ROWS, n, payloads.packed([batch])))
        log.sync()
    with timed(taken, "tuples read"):
        rows = sum(payloads.unpacked(entry.body).num_rows for entry in log.read(0))
    assert rows == entries * ROWS
    log.remove()


def _syncs(taken: dict[str, float], files: RealFolder) -> None:
    body = b"x" * 1000
    file = os.open(files.path / "raw", os.O_RDWR | os.O_CREAT)
    with timed(taken, "disk syncs"):
        for n in range(SYNCS):
            os.pwrite(file, body, n * len(body))
            os.fdatasync(file)
    os.close(file)
    log = StreamLog(files, "syncs")
    with timed(taken, "log syncs"):
        for n in range(SYNCS):
            log.append(Entry(n + 1, 1, n, body), sync=True)
    log.close()
