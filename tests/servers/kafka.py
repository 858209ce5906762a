"""What tests ask of a Kafka broker."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions, NewTopic

from bench.systems.kafka import Broker


class Kafka(Broker):
    def make_again(self, topic: str) -> None:
        """Delete it, with all that the broker has noted of it, and create another of its name."""
        self.admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
                break
            except KafkaException as error:  # it is still being deleted
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                assert time.monotonic() < deadline
                time.sleep(0.1)
        while self.admin.list_topics(topic).topics[topic].error is not None:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)

    def groups(self) -> set[str]:
        """The consumer groups that the broker knows."""
        return {group.group_id for group in self.admin.list_consumer_groups().result(30).valid}

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """As retention does."""
        place = TopicPartition(topic, partition, offset)
        self.admin.delete_records([place])[place].result(30)

    def send(self, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Plain records, one by one; texts are sent as UTF-8."""
        producer = Producer(self.client() | {"queue.buffering.max.messages": 2_000_000})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(30) == 0

    def producer(self, transactional_id: str) -> Producer:
        made = Producer(self.client() | {"transactional.id": transactional_id})
        made.init_transactions(30)
        return made

    def settle(self, topic: str, patience_s: float = 2.0) -> None:
        """Wait until what is committed can be seen, which a broker brings about a little later; or
        give up, since a transaction is open."""
        goal = self._ends(topic, "read_uncommitted")
        deadline = time.monotonic() + patience_s
        while self._ends(topic, "read_committed") != goal and time.monotonic() < deadline:
            time.sleep(0.02)

    def _ends(self, topic: str, isolation: str) -> list[int]:
        consumer = Consumer(self.client() | {"group.id": "test", "isolation.level": isolation})
        try:
            numbers = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
            places = [TopicPartition(topic, number) for number in numbers]
            return [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        finally:
            consumer.close()

    def records(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        if isolation == "read_committed":
            self.settle(topic)
        return super().records(topic, isolation)
