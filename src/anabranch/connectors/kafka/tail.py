"""What a query has written to a topic, found by reading back from the topic's end."""

from __future__ import annotations

import time
from threading import Event
from typing import Any

from anabranch.connectors.kafka.client import Topic
from anabranch.connectors.kafka.reading import read_range, watermarks
from anabranch.connectors.kafka.records import Record

QUERY, RUN, POSITION = "query", "run", "pos"
OTHERS_S = 60.0
"""How long other producers' transactions are waited for; theirs time out after that, by default."""
WINDOW = 1_000
"""Offsets read at first; others may write to the topic too, so each further step is larger."""


def marks(query: str, run: str, position: int) -> list[tuple[str, bytes]]:
    """The headers of a record."""
    named = [(QUERY, query.encode()), (POSITION, b"%d" % position)]
    return [*named, (RUN, run.encode())] if run else named


def last_position(topic: Topic, settings: dict[str, Any], query: str, run: str) -> int:
    """The greatest position of `query` in committed records of `topic`; of any run if `run` is
    empty; 0 if there is none. Positions ascend within a partition, so the last record counts."""
    found = _settled(topic, settings).items()
    return max((_in_partition(topic, settings, query, run, *one) for one in found), default=0)


def _settled(topic: Topic, settings: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """The ends of each partition, once no transaction is open that was when we began. Behind an
    open one of somebody else, records of ours may lie that nobody gets to see yet."""
    goal = watermarks(topic, settings | {"isolation.level": "read_uncommitted"})
    deadline = time.monotonic() + OTHERS_S
    while True:
        ends = watermarks(topic, settings)
        waiting = [number for number in goal if ends[number][1] < goal[number][1]]
        if not waiting:
            return ends
        if time.monotonic() > deadline:
            raise topic.failed(
                f"somebody else's transaction is open for more than {OTHERS_S:g} s, "
                "so it cannot be told what this query has written",
                "Start the query again when it is over.",
                waiting[0],
            )
        time.sleep(0.1)


def _in_partition(
    topic: Topic,
    settings: dict[str, Any],
    query: str,
    run: str,
    number: int,
    ends: tuple[int, int],
) -> int:
    low, end = ends
    window = WINDOW
    while end > low:
        begin = max(low, end - window)
        records = read_range(topic, settings, {number: begin}, {number: end}, Event())
        for record in reversed(records):
            if position := _position(record, query, run):
                return position
        end, window = begin, window * 4
    return 0


def _position(record: Record, query: str, run: str) -> int:
    """0 if the record is not of this query and run."""
    headers = dict(record.headers() or ())
    if headers.get(QUERY) != query.encode() or (run and headers.get(RUN) != run.encode()):
        return 0
    try:
        return int(headers.get(POSITION) or b"0")
    except ValueError:
        return 0
