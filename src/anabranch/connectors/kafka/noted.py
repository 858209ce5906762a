"""The note at the broker of how far a query's results are in a topic; the transactions that write
results update it.

The note is the offset of a consumer group without members, `anabranch-<query>-<topic>`. A text with
it says who writes, by run and epoch, and the last position; the offsets say from where on each
partition may hold records of ours that the note does not cover. So a whole topic is never read
back, and it does not matter which records its retention has deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from anabranch.connectors.kafka.client import Topic, make_client


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

    def __init__(self, topic: Topic[Any], settings: dict[str, Any], numbers: list[int]) -> None:
        self._topic = topic
        self._numbers = numbers
        self._consumer: Consumer = make_client(Consumer, settings, ())

    def close(self) -> None:
        self._consumer.close()

    def read(self, timeout_s: float) -> Noted | None:
        """The note that was committed last, once no open transaction can change it."""
        places = [TopicPartition(self._topic.name, number) for number in self._numbers]
        found = self._consumer.committed(places, timeout_s)
        text = next((one.metadata for one in found if one.metadata), None)
        if text is None:
            return None
        offsets = {one.partition: one.offset for one in found if one.offset >= 0}
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
