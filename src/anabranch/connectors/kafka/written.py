"""How far a query's results are in a topic: noted at its broker by the transactions that write
or, where that note is gone, found by reading the topic.

The note is the offset of a consumer group without members, `anabranch-<query>-<topic>`. A text with
it says who writes, by run and epoch, and the last position; the offsets say from where on each
partition may hold records of ours that the note does not cover. So a whole topic is never read
back, and it does not matter which records its retention has deleted.

The topic is read only where the note at the broker does not say it: after the offsets that it
names, and in topics that were written before there were notes. A bounded number of records is in
memory at a time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from anabranch.connectors.kafka.client import Topic, make_client
from anabranch.connectors.kafka.reading import EAGER, TopicReading, is_silent, watermarks
from anabranch.connectors.kafka.records import KafkaRecord


@dataclass(frozen=True)
class Noted:
    run: str
    epoch: int
    holder: int
    """Counts those who have written, of whatever run."""
    position: int
    offsets: Mapping[int, int] = field(default_factory=dict)


class Notes:
    """The notes of one query in one topic, whose partitions are `numbers`."""

    def __init__(self, topic: Topic[Any], settings: dict[str, object], numbers: list[int]) -> None:
        self._topic = topic
        self._numbers = numbers
        self._consumer: Consumer = make_client(Consumer, settings, ())

    def close(self) -> None:
        self._consumer.close()

    def read(self, timeout_s: float) -> Noted | None:
        """The note that was committed last, once no open transaction can change it."""
        places = [TopicPartition(self._topic.name, number) for number in self._numbers]
        committed = self._consumer.committed(places, timeout_s)
        text = next((one.metadata for one in committed if one.metadata), None)
        if text is None:
            return None
        offsets = {one.partition: one.offset for one in committed if one.offset >= 0}
        return Noted(**json.loads(text), offsets=offsets)

    def send(self, producer: Producer, noted: Noted, timeout_s: float) -> None:
        """Writes the note as part of the producer's transaction."""
        said = asdict(noted)
        del said["offsets"]
        text = json.dumps(said)
        places = [
            TopicPartition(self._topic.name, number, noted.offsets.get(number, 0), text)
            for number in self._numbers
        ]
        group = self._consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(places, group, timeout_s)


QUERY, RUN, POSITION = "query", "run", "pos"
OTHERS_S = 60.0
"""How long other producers' transactions are waited for; theirs time out after that, by default."""
WINDOW, WIDEST = 1_000, 250_000
"""Offsets read at first, backwards from the end; others may write to the topic too, so each further
step is larger, up to a limit. What a step reads is not kept."""
Ends = Mapping[int, tuple[int, int]]


def marks(query: str, run: str, position: int) -> list[tuple[str, bytes]]:
    """The headers of a record."""
    named = [(QUERY, query.encode()), (POSITION, b"%d" % position)]
    return [*named, (RUN, run.encode())] if run else named


class Tail:
    """The committed records of `query`; of any run if `run` is empty."""

    def __init__(
        self, topic: Topic[Any], settings: dict[str, object], query: str, run: str
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._query, self._run = query, run

    def last_position(self) -> tuple[int, bool]:
        """The greatest position, or 0, and whether the topic still has all that was ever written to
        it. Positions ascend within a partition, so the last record counts.
        """
        ends = self.settled()
        positions = [self._in_partition(number, *one) for number, one in ends.items()]
        return max(positions, default=0), all(low == 0 for low, _ in ends.values())

    def behind(self, offsets: Mapping[int, int]) -> tuple[int, bool]:
        """The greatest position in records from these offsets on, and whether all of those records
        are still there.
        """
        greatest, whole = 0, True
        for number, (low, end) in self.settled().items():
            begin = offsets.get(number, 0)
            whole = whole and low <= begin
            greatest = max(greatest, self._greatest(number, max(low, begin), end))
        return greatest, whole

    def settled(self) -> dict[int, tuple[int, int]]:
        """The ends of each partition, once all transactions are closed that were open when we
        began. Records of ours may lie after another's open transaction, and nobody can read them
        yet.
        """
        goal = watermarks(self._topic, self._settings | {"isolation.level": "read_uncommitted"})
        deadline = time.monotonic() + OTHERS_S
        while True:
            ends = watermarks(self._topic, self._settings)
            waiting = [number for number in goal if ends[number][1] < goal[number][1]]
            if not waiting:
                return ends
            if time.monotonic() > deadline:
                raise self._topic.passing(
                    f"somebody else's transaction is open for more than {OTHERS_S:g} s, "
                    "so it cannot be told what this query has written",
                    waiting[0],
                )
            time.sleep(0.1)

    def _in_partition(self, number: int, low: int, end: int) -> int:
        window = WINDOW
        while end > low:
            begin = max(low, end - window)
            if position := self._greatest(number, begin, end):
                return position
            end, window = begin, min(window * 4, WIDEST)
        return 0

    def _greatest(self, number: int, begin: int, end: int) -> int:
        if begin >= end:
            return 0
        greatest, heard = 0, time.monotonic()
        reading = TopicReading(self._topic, self._settings | EAGER, {number: begin})
        try:
            while not reading.has_reached({number: end}):
                records = reading.poll()
                mine = [self._position(one) for one in records if one.offset() < end]
                greatest = max([greatest, *mine])
                if records:
                    heard = time.monotonic()
                elif is_silent(self._topic, heard):
                    raise self._topic.passing("reading its records again came to nothing", number)
        finally:
            reading.close()
        return greatest

    def _position(self, record: KafkaRecord) -> int:
        """The record's position; 0 if it is not of this query and run."""
        headers = dict(record.headers() or ())
        other = headers.get(QUERY) != self._query.encode()
        if other or (self._run and headers.get(RUN) != self._run.encode()):
            return 0
        try:
            return int(headers.get(POSITION) or b"0")
        except ValueError:
            return 0
