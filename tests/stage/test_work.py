"""Tasks against a real state server, without Spark: ranges in any order, from several threads."""

from __future__ import annotations

import gzip
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.plan.expressions import Expr
from anabranch.plan.operators import Aggregate, AggregateCall, Call, Column, Item
from anabranch.plan.stage import Stage, StageInput
from anabranch.plan.windows import TimePanes
from anabranch.stage import inputs
from anabranch.stage.messages import (
    CALL_S,
    MOVE_S,
    AwaitWindows,
    BeginPartitions,
    EndPartitions,
    FindGaps,
    GetWindows,
    WriteCheckpoint,
)
from anabranch.stage.process import ServerProcess
from anabranch.stage.work import StageWork, input_of, take_range
from anabranch.stream.batch import START_WATERMARK

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64())])
SAMPLE = pa.schema([("_slice", pa.int64()), ("_k0", pa.string()), ("_a0", pa.int64())])
REAL = Path(os.environ.get("ANABRANCH_DATA", "../shared/data")) / "lorawan" / "frames.ndjson.gz"


def stage_of(file: Path, width_us: int, lateness_us: int) -> Stage:
    value = (Expr.of("r", "v"),)
    return Stage(
        input=StageInput(
            stream="r",
            columns=(Column(name="k", type="string"), Column(name="v", type="bigint")),
            source=Call(name="file", options={"path": str(file)}),
            timestamp="ts",
            lateness_us=lateness_us,
        ),
        aggregate=Aggregate(
            panes=TimePanes(width_us=width_us, slide_us=width_us),
            keys=(Item(expr=Expr.of("r", "k"), name="k", type="string"),),
            calls=(
                AggregateCall(function="SUM", arguments=value, name="_agg0", type="bigint"),
                AggregateCall(function="COUNT", name="_agg1", type="bigint"),
            ),
        ),
    )


def recomputed(
    rows: list[tuple[int, str, int]], width_us: int, lateness_us: int
) -> tuple[list[tuple[Any, ...]], int]:
    """The results of a batch, and how many tuples are late."""
    newest, late, groups = rows[0][0], 0, {}
    for ts, key, value in rows:
        if ts < newest - lateness_us:
            late += 1
        else:
            groups.setdefault((ts // width_us, key), []).append(value)
        newest = max(newest, ts)
    return [(w, k, sum(v), len(v)) for (w, k), v in sorted(groups.items())], late


def run_stage(
    stage: Stage, folder: Path, threads: int, kills: int, draw: random.Random
) -> tuple[list[tuple[Any, ...]], int]:
    """Take all ranges, the state server killed now and then; results and late tuples."""
    source = input_of(stage, COLUMNS)
    schema = COLUMNS.serialize().to_pybytes()
    for attempt in range(kills + 1):
        server = ServerProcess(stage, SAMPLE, folder)
        try:
            server.peer.send(BeginPartitions(source.starts()))
            server.peer.send(EndPartitions(source.ends()))
            ranges = []
            for gap in server.peer.send(FindGaps(source.ends())):
                while True:
                    ranges.append(source.cut(gap))
                    if ranges[-1].end == gap.end:
                        break
                    gap = inputs.OffsetRange(gap.partition, ranges[-1].end, gap.end)
            last = attempt == kills
            work = StageWork(
                stage.model_dump_json(), schema, (server.address.port, server.address.token)
            )
            some = ranges if last else ranges[: draw.randrange(len(ranges) + 1)]
            with ThreadPoolExecutor(threads) as pool:
                for report in pool.map(partial(take_range, work), some):
                    assert report.error is None
                    if draw.random() < 0.2:
                        server.peer.send(WriteCheckpoint(), CALL_S)
            if last:
                due = server.peer.send(AwaitWindows(START_WATERMARK, 0))
                found, after = [], START_WATERMARK
                while due.end is not None:
                    windows, _ = server.peer.fetch(GetWindows(after, due.end), MOVE_S)
                    found += windows.to_pylist()
                    after = due.end
                    due = server.peer.send(AwaitWindows(after, 0))
                assert due.ended
                return [tuple(row.values()) for row in found], due.status.late
        finally:
            server.close()
    raise AssertionError


@pytest.mark.parametrize("seed", range(3))
def test_ranges_in_parallel_give_what_a_batch_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(inputs, "BYTES", 3_000)
    draw = random.Random(seed)
    rows = [
        (
            n * 1000 - draw.choice([0, 0, 500, 9_000, 40_000]) + 10**6,
            draw.choice("abc"),
            draw.randrange(100),
        )
        for n in range(4000)
    ]
    file = tmp_path / "in.csv"
    file.write_text("ts,k,v\n" + "".join(f"{ts},{k},{v}\n" for ts, k, v in rows))
    stage = stage_of(file, 50_000, 10_000)
    found = run_stage(stage, tmp_path / "state", threads=3, kills=3, draw=draw)
    expected = recomputed(rows, 50_000, 10_000)
    assert expected[1] > 100
    assert found == expected


@pytest.mark.skipif(not REAL.exists(), reason="the data set is not here")
@pytest.mark.parametrize("lateness_us", [0, 2_000_000, 3_600_000_000])
def test_real_frames_in_the_order_of_their_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lateness_us: int
) -> None:
    monkeypatch.setattr(inputs, "BYTES", 50_000)
    with gzip.open(REAL, "rt") as lines:
        frames = [json.loads(line) for line in lines]
    frames.sort(key=lambda one: one["_timestamp"])
    rows = [
        (int(one["hotspots"][0]["reported_at"]) * 1000, str(one["dev_eui"]), one["fcnt"])
        for one in frames
        if one.get("hotspots")
    ]
    file = tmp_path / "in.csv"
    file.write_text("ts,k,v\n" + "".join(f"{ts},{k},{v}\n" for ts, k, v in rows))
    stage = stage_of(file, 600_000_000, lateness_us)
    found = run_stage(stage, tmp_path / "state", 3, kills=2, draw=random.Random(1))
    assert found == recomputed(rows, 600_000_000, lateness_us)
