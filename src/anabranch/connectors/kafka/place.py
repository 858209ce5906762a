"""The place that results go to: a topic, and the note at its broker that says how far they are
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from confluent_kafka import Producer

from anabranch.connectors.kafka import reading as kafka_reading
from anabranch.connectors.kafka import written
from anabranch.connectors.kafka.client import Topic, client_settings, make_client
from anabranch.connectors.kafka.written import Noted
from anabranch.errors import SinkAway, SinkError

# Where Java's producers put a key, so that records of both meet.
_DEFAULTS = {"partitioner": "murmur2_random", "linger.ms": 5}


class ResultNotes(Protocol):
    """What a sink needs of `written.Notes`."""

    def read(self, timeout_s: float) -> Noted | None: ...
    def send(self, producer: Producer, noted: Noted, timeout_s: float) -> None: ...
    def close(self) -> None: ...


class ResultTail(Protocol):
    """What a sink needs of `written.Tail`."""

    def last_position(self) -> tuple[int, bool]: ...
    def behind(self, offsets: Mapping[int, int]) -> tuple[int, bool]: ...


class TopicPlace(Protocol):
    """All that a sink asks of Kafka. If a broker is away, calls raise SinkAway or a
    KafkaException.
    """

    topic: Topic[SinkError]
    group: str

    def check(self) -> None:
        """Raises SinkError unless the topic is there."""

    def notes(self) -> ResultNotes: ...

    def producer(self) -> Producer:
        """A new producer. Its transactions fence off those of the query's other producers."""

    def tail(self, run: str) -> ResultTail: ...

    def ends(self) -> dict[int, int]:
        """Partition → the offset after its last record."""


class BrokerPlace:
    """The place of a query's results in a topic."""

    def __init__(
        self, servers: str, topic: str, query: str, passed: Mapping[str, Any], names: Iterable[str]
    ) -> None:
        """`passed` are settings of the client, `names` our own options."""
        client = client_settings(servers, passed, names)
        self.group = f"anabranch-{query}-{topic}"
        self._query = query
        self._settings = _DEFAULTS | {"transactional.id": self.group} | client
        make_client(Producer, self._settings, names)
        self._reader = {"group.id": self.group} | client | kafka_reading.SETTINGS
        self.topic = Topic(servers, topic, self._reader, SinkError, SinkAway)

    def check(self) -> None:
        self.topic.partitions()

    def notes(self) -> written.Notes:
        return written.Notes(self.topic, self._reader, self.topic.partitions())

    def producer(self) -> Producer:
        producer: Producer = make_client(Producer, self._settings, ())
        return producer

    def tail(self, run: str) -> written.Tail:
        return written.Tail(self.topic, self._reader, self._query, run)

    def ends(self) -> dict[int, int]:
        marks = kafka_reading.watermarks(self.topic, self._reader)
        return {number: high for number, (_, high) in marks.items()}
