"""Reads partitions of a topic from given offsets on, without a consumer group.

We keep the offsets ourselves, so nothing is ever committed. Only records that their producer has
committed are read. Offsets may be missing between two records of a partition (transaction markers,
aborted or compacted records), so the end of a range is reached when a record lies after it, or when
the partition has no more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch.connectors.kafka.client import PATIENCE_S, Topic, make_client, passes
from anabranch.connectors.kafka.records import KafkaRecord, Merge, in_order
from anabranch.errors import AnabranchError

BATCH = 10_000
"""Records taken at a time."""
LINGER_S = 0.01
"""How long a record waits for company. With 3 ms results were no sooner: instances then wait for
the sink, which writes each in a transaction."""
POLL_S = 0.1
PARTITION_SILENCE_S = 3.0
"""A partition that gives nothing for this long, not even its end, holds up the others no more."""
SILENCE_S = 30.0
"""A broker that says nothing for this long while records must be there is gone; of one that cannot
be reached that is known after PATIENCE_S."""
SETTINGS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
}
LIMITS = {"queued.max.messages.kbytes": 16_384, "fetch.queue.backoff.ms": 10}
"""How much librdkafka reads ahead, and how soon it goes on when there is room again (else a second
later). A user may choose otherwise."""
EAGER = {"fetch.wait.max.ms": 10}
"""For a reading that has an end: a broker answers by itself when it has waited this long in vain,
and only by that we learn that a partition has no more."""
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class TopicReading:
    """`offsets` holds the next offset of each partition to be taken; records after it may have come
    already.
    """

    def __init__(
        self, topic: Topic[AnabranchError], settings: dict[str, object], offsets: Mapping[int, int]
    ) -> None:
        self.offsets = dict(offsets)
        self._fetched = dict(offsets)
        self._heard = dict.fromkeys(offsets, time.monotonic())
        self._paused: set[int] = set()
        self._merge = Merge()
        self.at_end: dict[int, int] = {}
        """Partitions that had no more when last heard of, and the offset where that was."""
        self.problem = ""
        """Why nothing can come at present; it does again by itself."""
        self._topic = topic
        self.consumer: Consumer = make_client(Consumer, settings | {"error_cb": topic.note}, ())
        self.consumer.assign(self._places(offsets))

    def close(self) -> None:
        self.consumer.close()

    def take(self) -> list[KafkaRecord]:
        """The records that have come and may go, in the order of `in_order`; empty if nothing comes
        for a while.
        """
        self._merge.add(self.poll())
        records = self._merge.take(self._behind())
        for record in records:
            partition = record.partition()
            self.offsets[partition] = max(self.offsets[partition], record.offset() + 1)
        self._pace()
        return records

    def _behind(self) -> list[int]:
        """Partitions that have more for us, as far as we know. A partition that is silent for long
        does not delay the others.
        """
        if len(self._fetched) == 1:
            return []
        oldest = time.monotonic() - PARTITION_SILENCE_S
        return [
            partition
            for partition, heard in self._heard.items()
            if heard >= oldest and partition not in self.at_end and not self._caught_up(partition)
        ]

    def _caught_up(self, partition: int) -> bool:
        place = TopicPartition(self._topic.name, partition)
        _, high = self.consumer.get_watermark_offsets(place, cached=True)
        return 0 <= high <= self._fetched[partition]

    def _pace(self) -> None:
        """Pauses a partition that is far ahead, until the others have caught up."""
        self.pause({p for p in self._fetched if self._merge.held(p) > BATCH})

    def pause(self, full: set[int]) -> None:
        """Reads these partitions no further for now, and all others."""
        if pause := full - self._paused:
            self.consumer.pause(self._places(dict.fromkeys(pause, 0)))
        if resume := self._paused - full:
            self.consumer.resume(self._places(dict.fromkeys(resume, 0)))
        self._paused = full

    def poll(self) -> list[KafkaRecord]:
        """The records in the order in which they came."""
        answers: list[Any] = self.consumer.consume(1, POLL_S)
        if answers:
            answers += self.consumer.consume(BATCH, LINGER_S)
        records: list[KafkaRecord] = [answer for answer in answers if self._is_record(answer)]
        now = time.monotonic()
        for record in records:
            self._fetched[record.partition()] = record.offset() + 1
            self._heard[record.partition()] = now
        for partition in self._paused:
            self._heard[partition] = now
        return records

    def look(self, *, add: bool) -> None:
        """Checks that the topic still exists, and calls `add` with partitions that have been added
        to it, which are read from their first record.
        """
        try:
            present = self._topic.numbers(self.consumer, timeout_s=1.0)
        except AnabranchError as error:
            self.problem = f"{error.place}: {error.message}"
            return
        self.problem = ""
        added = {number: 0 for number in present if number not in self.offsets}
        if add:
            self.add(added)

    def add(self, offsets: Mapping[int, int]) -> None:
        """Reads these partitions too, from there on."""
        if offsets:
            self.offsets |= offsets
            self._fetched |= offsets
            self._heard |= dict.fromkeys(offsets, time.monotonic())
            self.consumer.incremental_assign(self._places(offsets))

    def has_reached(self, goal: Mapping[int, int]) -> bool:
        """Whether all records before `goal` have come, and been taken where they had to be."""
        return not len(self._merge) and all(
            self._fetched.get(partition, 0) >= offset or partition in self.at_end
            for partition, offset in goal.items()
        )

    def reach(self, partition: int) -> int:
        return max(self._fetched[partition], self.at_end.get(partition, 0))

    def _is_record(self, answer: Any) -> bool:
        error, partition = answer.error(), answer.partition()
        if error is None:
            self.at_end.pop(partition, None)
            return True
        code = error.code()
        if code in _GONE:
            raise self._gone(partition)
        if code == KafkaError._PARTITION_EOF:
            self.at_end[partition] = answer.offset()
        elif not passes(error):  # else librdkafka connects again by itself
            raise self._topic.failed(error.str(), partition=partition)
        return False

    def _gone(self, partition: int) -> AnabranchError:
        return self._topic.lost(
            f"the records from offset {self._fetched.get(partition, 0)} on are not there any more",
            partition,
            "Drop the stream and create it again; let the topic keep its records longer.",
        )

    def _places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic.name, *item) for item in sorted(offsets.items())]


def watermarks(
    topic: Topic[AnabranchError], settings: dict[str, object]
) -> dict[int, tuple[int, int]]:
    """The offset of each partition's first record, and the offset after its last."""
    consumer = make_client(Consumer, settings | {"error_cb": topic.note}, ())
    try:
        numbers = topic.numbers(consumer, PATIENCE_S, lambda: consumer.poll(0))
        return {number: _ends(consumer, topic, number) for number in numbers}
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: Topic[AnabranchError], number: int) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic.name, number), timeout=PATIENCE_S
        )
    except KafkaException as error:
        raise topic.asked(error.args[0], number) from error
    return low, high


def read_ranges(
    topic: Topic[AnabranchError],
    settings: dict[str, object],
    begin: Mapping[int, int],
    ends: Iterator[Mapping[int, int]],
    stopped: Event,
) -> Iterator[list[KafkaRecord]]:
    """The records from `begin` on and before the first of `ends`, then those up to the next, and so
    on, each in the order in which they were taken at first; one consumer reads them. A partition
    that was not known before starts at 0. Ends early if `stopped` is set.
    """
    reading = TopicReading(topic, settings | EAGER, begin)
    held: dict[int, deque[KafkaRecord]] = {}
    at = dict(begin)
    try:
        for end in ends:
            reading.add({number: 0 for number in end if number not in at})
            wanted = {
                number: offset for number, offset in end.items() if offset > at.get(number, 0)
            }
            if not _gather(reading, topic, wanted, held, stopped):
                return
            at |= end
            yield in_order(_up_to(held, wanted))
    finally:
        reading.close()


def _gather(
    reading: TopicReading,
    topic: Topic[AnabranchError],
    wanted: Mapping[int, int],
    held: dict[int, deque[KafkaRecord]],
    stopped: Event,
) -> bool:
    """Reads until all records before `wanted` are held, with any others that come. False if it must
    stop.
    """
    heard = time.monotonic()
    while not reading.has_reached(wanted):
        if stopped.is_set():
            return False
        records = reading.poll()
        for record in records:
            held.setdefault(record.partition(), deque()).append(record)
        reading.pause(
            {
                number
                for number, some in held.items()
                if len(some) > BATCH and some[-1].offset() + 1 >= wanted.get(number, 0)
            }
        )
        if records:
            heard = time.monotonic()
        elif is_silent(topic, heard):
            raise topic.away()
    for number, offset in wanted.items():
        if reading.reach(number) < offset:
            raise topic.lost(
                f"records up to offset {offset} were read, and now it ends at"
                f" {reading.reach(number)}",
                number,
            )
    return True


def is_silent(topic: Topic[Any], heard: float) -> bool:
    """Whether a reading that last received something at `heard` waits in vain."""
    return time.monotonic() - heard > (PATIENCE_S if topic.trouble_at > heard else SILENCE_S)


def _up_to(held: dict[int, deque[KafkaRecord]], wanted: Mapping[int, int]) -> Iterator[KafkaRecord]:
    for number, offset in wanted.items():
        records = held.get(number, deque())
        while records and records[0].offset() < offset:
            yield records.popleft()


def read_range(
    topic: Topic[AnabranchError],
    settings: dict[str, object],
    begin: Mapping[int, int],
    end: Mapping[int, int],
    stopped: Event,
) -> list[KafkaRecord]:
    """The records of each partition from `begin` on and before `end`, in the order in which they
    were taken at first. A partition that `begin` does not know starts at 0.
    """
    starts = {number: begin.get(number, 0) for number in end if end[number] > begin.get(number, 0)}
    if not starts:
        return []
    taken: list[KafkaRecord] = []
    reading = TopicReading(topic, settings | EAGER, starts)
    try:
        heard = time.monotonic()
        while not reading.has_reached({number: end[number] for number in starts}):
            records = reading.poll()
            taken += [one for one in records if one.offset() < end[one.partition()]]
            if records:
                heard = time.monotonic()
            elif stopped.is_set() or is_silent(topic, heard):
                raise topic.away()
        for number in starts:
            if reading.reach(number) < end[number]:
                raise topic.lost("its last records are not there any more", number)
    finally:
        reading.close()
    return in_order(taken)
