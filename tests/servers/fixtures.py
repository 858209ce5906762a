"""Servers for tests, started when the first test asks, stopped when the last is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.systems.postgres import Postgres
from tests.servers.kafka import Kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    broker = Kafka()
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.remove()
