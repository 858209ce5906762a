"""Streams as one: the order of (event time, stream, position), however they come."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.snapshot.state import KeptPieces
from anabranch.stream.batch import END_WATERMARK, START_WATERMARK
from anabranch.window.union import UnionState

SCHEMA = pa.schema([("v", pa.int64()), ("_ts", pa.int64())])
LATENESS = 5
streams_of_times = st.lists(st.lists(st.integers(0, 40), max_size=25), min_size=1, max_size=3)


def timely(times: list[int]) -> list[int]:
    """Without those that lie too far behind the newest before them."""
    kept: list[int] = []
    newest = 0
    for ts in times:
        if ts >= newest - LATENESS:
            kept.append(ts)
        newest = max(newest, ts)
    return kept


class Play:
    """Streams that are given piece by piece, from positions of our choice on."""

    def __init__(self, streams: list[list[int]]) -> None:
        self.streams = streams
        self.state = UnionState(SCHEMA, len(streams))
        self.given = [0] * len(streams)

    def expected(self) -> list[tuple[int, int]]:
        every = [
            (ts, stream, position)
            for stream, times in enumerate(self.streams)
            for position, ts in enumerate(times, 1)
        ]
        return [(stream * 1000 + position, ts) for ts, stream, position in sorted(every)]

    def step(self, counts: list[int]) -> Any:
        arrivals = []
        for stream, count in enumerate(counts):
            begin = self.given[stream]
            end = self.given[stream] = min(len(self.streams[stream]), begin + count)
            rows = [
                {"v": stream * 1000 + n + 1, "_ts": self.streams[stream][n]}
                for n in range(begin, end)
            ]
            newest = max(self.streams[stream][:end], default=START_WATERMARK + LATENESS)
            mark = END_WATERMARK if end == len(self.streams[stream]) else newest - LATENESS
            arrivals.append((pa.Table.from_pylist(rows, SCHEMA), end, mark))
        return self.state.step(arrivals)


def rows_of(table: pa.Table) -> list[tuple[int, int]]:
    return [(row["v"], row["_ts"]) for row in table.to_pylist()]


@settings(deadline=None)
@given(streams_of_times, st.data())
def test_any_cut_gives_one_order_and_any_restart_the_rest(streams, data) -> None:
    play = Play([timely(times) for times in streams])
    found: list[tuple[int, int]] = []
    states: list[tuple[KeptPieces, list[int]]] = []
    while True:
        counts = data.draw(
            st.lists(st.integers(0, 9), min_size=len(streams), max_size=len(streams))
        )
        counts[0] += 1
        merged = play.step(counts)
        found += rows_of(merged.table)
        assert all(ts >= merged.watermark for _, ts in play.expected()[len(found) :])
        if data.draw(st.booleans()):
            again = Play(play.streams)
            again.given = list(merged.needless)
            again.state.open(merged.instant)
            rest = rows_of(again.step([99] * len(streams)).table)
            assert found + rest == play.expected()
        state = play.state.snapshot()
        kept = KeptPieces(state.notes, [piece.to_bytes() for piece in state.pieces])
        states.append((kept, list(play.given)))
        restored, given = data.draw(st.sampled_from(states))  # it may have been kept before
        again = Play(play.streams)
        again.given = given.copy()
        again.state.open(merged.instant)
        again.state.restore(restored)
        assert found + rows_of(again.step([99] * len(streams)).table) == play.expected()
        if merged.watermark == END_WATERMARK:
            break
        if play.given[0] == len(play.streams[0]):
            merged = play.step([99] * len(streams))
            found += rows_of(merged.table)
            break
    assert found == play.expected()
