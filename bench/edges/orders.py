"""Orders of shops through Kafka: what is sent, what comes out, and what should have.

Event times are made up, so that nothing depends on when a record comes. What should come out is
computed of the topic's own records, by a few lines of Python that know nothing of the product.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from anabranch.errors import TaskError
from bench.systems.kafka import Broker
from bench.systems.postgres import Postgres

PARTITIONS, SHOPS, PER_S = 3, 7, 200
START_MS, STEP_MS = 1_700_000_000_000, 5
WINDOW_MS, LATENESS_MS = 1000, 2000
EVERY_S = 0.02
LAST_MS = 3_600_000
"""So much later are the last records, which close all windows before them."""

SCRIPT = """
CREATE STREAM orders (id BIGINT, shop BIGINT, amount BIGINT) TIMESTAMP at UNIT ms LATENESS {late}ms
  FROM kafka(servers = '{servers}', topic = '{source}') AT shop;
CREATE QUERY totals AS SELECT shop, sum(amount) AS total, count(*) AS n FROM orders[{window}ms]
  GROUP BY shop INTO postgres(url = '{url}', table = 'totals') AT centre;
CREATE QUERY large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount % 10 <> 3
  INTO kafka(servers = '{servers}', topic = '{target}') AT centre;
"""
Row = tuple[Any, ...]


class Orders:
    """A thread that sends them, at a steady rate, for as long as the broker takes them."""

    def __init__(self, kafka: Broker) -> None:
        self.kafka = kafka
        self.source, self.target = kafka.topic(PARTITIONS), kafka.topic()
        self._producer = Producer(
            kafka.client() | {"enable.idempotence": True, "message.timeout.ms": 600_000}
        )
        self._sent = 0
        self._paused, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send, name="orders", daemon=True)
        self._thread.start()

    def _send(self) -> None:
        """What was not sent during a pause is not sent later."""
        due = 0.0
        while not self._stopped.wait(EVERY_S):
            if self._paused.is_set():
                continue
            due += EVERY_S * PER_S
            while due >= 1:
                self._one(START_MS + self._sent * STEP_MS, self._sent % PARTITIONS)
                due -= 1
            self._producer.poll(0)

    def _one(self, at: int, partition: int) -> None:
        n = self._sent
        amount = n * 7919 % 1000
        value = json.dumps({"id": n, "shop": n % SHOPS, "amount": amount, "at": at})
        self._producer.produce(self.source, value.encode(), partition=partition, timestamp=at)
        self._sent += 1

    def hold(self) -> None:
        """Send nothing more. A minute's backlog would come partition after partition, so that most
        of it was later than the stream allows."""
        self._paused.set()

    def pause(self) -> None:
        """When this returns, the broker has all that was sent."""
        self.hold()
        time.sleep(2 * EVERY_S)
        self._flush()

    def go_on(self) -> None:
        self._paused.clear()

    def end(self) -> None:
        """The last records, one a partition: what comes before them is complete."""
        self.close()
        self._flush()
        at = START_MS + self._sent * STEP_MS + LAST_MS
        for partition in range(PARTITIONS):
            self._one(at, partition)
        self._flush()

    def _flush(self) -> None:
        if self._producer.flush(120):
            raise TaskError("Kafka has not taken what was sent")

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()


@dataclass(frozen=True)
class Outputs:
    """What the two queries have written so far, as their readers find it."""

    totals: list[Row]
    """Rows of the table in the order of positions, with where each lies and who wrote it."""
    large: list[Row]
    """Records of the topic as they lie there, with their positions."""


class Results:
    def __init__(self, orders: Orders, postgres: Postgres) -> None:
        self._orders = orders
        self._postgres = postgres
        self._reader = orders.kafka.reader(orders.target)
        self._read = 0

    def script(self) -> str:
        kafka = self._orders.kafka
        return SCRIPT.format(
            servers=kafka.servers,
            source=self._orders.source,
            target=self._orders.target,
            url=self._postgres.url,
            late=LATENESS_MS,
            window=WINDOW_MS,
        )

    def counts(self) -> tuple[int, int]:
        """Rows of the table and records of the topic so far."""
        found = self._reader.consume(10_000, 0.05)
        self._read += sum(1 for one in found if not one.error())
        (rows,) = self._postgres.execute("SELECT count(*) FROM totals")[0]
        return rows, self._read

    def close(self) -> None:
        self._reader.close()

    def read(self) -> Outputs:
        totals = self._postgres.execute(
            "SELECT _pos, _ts, shop, total, n, ctid::text, xmin::text FROM totals ORDER BY _pos"
        )
        records = self._orders.kafka.records(self._orders.target)
        large = [(_position(one), *json.loads(one.value() or b"").values()) for one in records]
        return Outputs(totals, [(row[0], row[1], row[2]) for row in large])

    def expected(self) -> tuple[dict[Row, Row], dict[int, int]]:
        """(End of the window in µs, shop) → sum and count; id → twice the amount."""
        records = self._orders.kafka.records(self._orders.source)
        sent = [json.loads(one.value() or b"") for one in records]
        complete = max((one["at"] for one in sent), default=0) - LATENESS_MS
        sums: Counter[Row] = Counter()
        counts: Counter[Row] = Counter()
        for one in sent:
            end = (one["at"] // WINDOW_MS + 1) * WINDOW_MS
            if end <= complete:
                sums[end * 1000, one["shop"]] += one["amount"]
                counts[end * 1000, one["shop"]] += 1
        large = {one["id"]: 2 * one["amount"] for one in sent if one["amount"] % 10 != 3}
        return {key: (sums[key], counts[key]) for key in counts}, large


def _position(record: Any) -> int:
    return int(dict(record.headers())["pos"])


FAULTS = ("lost", "repeated", "wrong", "disordered", "rewritten")


def faults(
    found: Outputs, expected: tuple[dict[Row, Row], dict[int, int]], *, complete: bool
) -> dict[str, int]:
    """What is wrong with all that was written; unless it is `complete`, what is not there may yet
    come, but nothing that lies behind it may be there."""
    windows, twice = expected
    totals = {(ts, shop): (total, n) for _, ts, shop, total, n, *_ in found.totals}
    large = {key: value for _, key, value in found.large}
    newest = max((end for end, _ in totals), default=0)
    wanted = windows if complete else {key for key in windows if key[0] < newest}
    lost = len(set(wanted) - set(totals)) + (len(set(twice) - set(large)) if complete else 0)
    return {
        "lost": lost,
        "repeated": len(found.totals) - len(totals) + len(found.large) - len(large),
        "wrong": sum(windows.get(key) != value for key, value in totals.items())
        + sum(twice.get(key) != value for key, value in large.items()),
        "disordered": _gaps(found.totals) + _gaps(found.large),
    }


def _gaps(rows: list[Row]) -> int:
    """Places at which positions do not go on by one, from 1."""
    return sum(row[0] != number for number, row in enumerate(rows, 1))


def rewritten(before: Outputs, after: Outputs) -> int:
    """Rows that were there and are not as they were, where they were."""
    tables = len(set(before.totals) - set(after.totals))
    return tables + sum(a != b for a, b in zip(before.large, after.large, strict=False))
