"""Reading partitions of a topic from given offsets on, without a consumer group.

Offsets are ours to keep, so nothing is ever committed. Only what was committed by its producer is
read. Between two records of a partition offsets may be missing (transaction markers, aborted or
compacted records), so the end of a range is reached when a record lies behind it, or when the
partition has no more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch.errors import AnabranchError
from anabranch.site.wrappers.kafka_client import PATIENCE_S, Topic, make_client
from anabranch.site.wrappers.kafka_records import Record

BATCH = 10_000
"""Records taken at a time."""
LINGER_S = 0.01
"""How long a record waits for company."""
POLL_S = 0.1
SILENCE_S = 30.0
"""A broker that says nothing for this long while records must be there is gone."""
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
_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
"""librdkafka connects again by itself."""


class Reading:
    """`offsets` holds the next offset of each partition."""

    def __init__(self, topic: Topic, settings: dict[str, Any], offsets: Mapping[int, int]) -> None:
        self.offsets = dict(offsets)
        self.at_end: dict[int, int] = {}
        """Partitions that had no more when last heard of, and the offset where that was."""
        self._topic = topic
        self.consumer: Consumer = make_client(Consumer, settings, ())
        self.consumer.assign(self._places(offsets))

    def close(self) -> None:
        self.consumer.close()

    def take(self) -> list[Record]:
        """What has come, ordered by partition and offset; empty if nothing comes for a while."""
        answers: list[Any] = self.consumer.consume(1, POLL_S)
        if answers:
            answers += self.consumer.consume(BATCH, LINGER_S)
        records: list[Record] = [answer for answer in answers if self._is_record(answer)]
        for record in records:
            self.offsets[record.partition()] = record.offset() + 1
        if len(self.offsets) > 1:
            records.sort(key=_partition)  # stable: offsets ascend already
        return records

    def look_for_partitions(self) -> None:
        """Partitions may be added to a topic; new ones are read from their first record."""
        try:
            present = self._topic.numbers(self.consumer, timeout_s=1.0)
        except AnabranchError:
            return
        added = {number: 0 for number in present if number not in self.offsets}
        if added:
            self.offsets |= added
            self.consumer.incremental_assign(self._places(added))

    def has_reached(self, goal: Mapping[int, int]) -> bool:
        return all(
            self.offsets.get(partition, 0) >= offset or partition in self.at_end
            for partition, offset in goal.items()
        )

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
        elif code not in _PASSING and not error.retriable():
            raise self._topic.failed(error.str(), partition=partition)
        return False

    def _gone(self, partition: int) -> AnabranchError:
        return self._topic.failed(
            f"the records from offset {self.offsets.get(partition, 0)} on are not there any more",
            "Drop the stream and create it again; let the topic keep its records longer.",
            partition,
        )

    def _places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic.name, *item) for item in sorted(offsets.items())]


def watermarks(topic: Topic, settings: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Per partition the offset of its first record, and the one behind its last."""
    consumer = make_client(Consumer, settings, ())
    try:
        numbers = topic.numbers(consumer, PATIENCE_S)
        return {number: _ends(consumer, topic, number) for number in numbers}
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: Topic, number: int) -> tuple[int, int]:
    try:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic.name, number), timeout=PATIENCE_S
        )
    except KafkaException as error:
        raise topic.failed(error.args[0].str(), partition=number) from error
    return low, high


def read_range(
    topic: Topic,
    settings: dict[str, Any],
    begin: Mapping[int, int],
    end: Mapping[int, int],
    stopped: Event,
) -> list[Record]:
    """The records of each partition from `begin` on and before `end`, ordered by partition and
    offset. A partition that `begin` does not know starts at 0."""
    starts = {number: begin.get(number, 0) for number in end if end[number] > begin.get(number, 0)}
    if not starts:
        return []
    found: list[Record] = []
    reading = Reading(topic, settings | EAGER, starts)
    try:
        heard = time.monotonic()
        while not reading.has_reached({number: end[number] for number in starts}):
            records = reading.take()
            found += [one for one in records if one.offset() < end[one.partition()]]
            if records:
                heard = time.monotonic()
            elif stopped.is_set() or time.monotonic() - heard > SILENCE_S:
                raise topic.failed("reading its records again came to nothing")
        for number in starts:
            if max(reading.offsets[number], reading.at_end.get(number, 0)) < end[number]:
                raise topic.failed("its last records are not there any more", partition=number)
    finally:
        reading.close()
    found.sort(key=_partition)
    return found


def _partition(record: Record) -> int:
    return record.partition()
