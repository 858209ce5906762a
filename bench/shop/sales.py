"""What the stores sell: records in a topic of each, and what is in these topics at the end."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from bench.systems.kafka import Broker

STORES = ("s1", "s2", "s3")
PRODUCTS = 8
EVERY_S = 0.05


class Sale(NamedTuple):
    id: int
    store: str
    product: int
    quantity: int
    cents: int
    ts: int
    """Milliseconds since 1970."""


def topic(store: str) -> str:
    return f"sales_{store}"


class Tills:
    """Sales of all stores at a steady rate, from when it is made until it is closed."""

    def __init__(self, broker: Broker, per_s: float) -> None:
        names = [topic(store) for store in STORES]
        for made in broker.admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(30)
        self._producer = Producer(broker.client() | {"linger.ms": 0})
        self._per_s = per_s
        self._random = random.Random(1)
        self._closed = threading.Event()
        self.sold = 0
        self._thread = threading.Thread(target=self._sell, name="tills", daemon=True)
        self._thread.start()

    def _sell(self) -> None:
        begun = time.monotonic()
        while not self._closed.wait(EVERY_S):
            while self.sold < (time.monotonic() - begun) * self._per_s * len(STORES):
                self._one()
            self._producer.poll(0)

    def _one(self) -> None:
        draw = self._random.randint
        self.sold += 1
        store = STORES[self.sold % len(STORES)]
        now = time.time_ns() // 1_000_000
        sale = Sale(self.sold, store, draw(1, PRODUCTS), draw(1, 5), draw(100, 9_999), now)
        self._producer.produce(topic(store), json.dumps(sale._asdict()).encode())

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._producer.flush(10)


def sold(broker: Broker, store: str) -> Iterator[Sale]:
    """All records of a store's topic, as Kafka's own client reads them."""
    consumer = Consumer(broker.client() | {"group.id": "count", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic(store), 0), timeout=30)
        consumer.assign([TopicPartition(topic(store), 0, OFFSET_BEGINNING)])
        offset = 0
        while offset < end:
            for message in consumer.consume(1_000, timeout=1):
                offset, value = (message.offset() or 0) + 1, message.value()
                yield Sale(**json.loads(value or b""))
    finally:
        consumer.close()
