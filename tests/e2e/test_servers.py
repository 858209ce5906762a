"""From Kafka over two sites into Kafka and PostgreSQL."""

from __future__ import annotations

import json

from bench.systems.postgres import Postgres
from tests.e2e.system import System
from tests.servers.kafka import Kafka


def test_a_topic_through_queries_into_a_topic_and_a_table(
    system: System, kafka: Kafka, postgres: Postgres
) -> None:
    source, results = kafka.topic(), kafka.topic()
    values = [json.dumps({"id": n, "room": f"r{n % 7}", "ts": n * 1000}) for n in range(5000)]
    kafka.send(source, values)
    system.run(
        f"""
        CREATE STREAM readings (id BIGINT, room STRING) TIMESTAMP ts
          FROM kafka(servers = '{kafka.servers}', topic = '{source}', once = TRUE) AT room1;
        CREATE QUERY odd AS SELECT id, upper(room) AS room FROM readings WHERE id % 2 = 1
          INTO kafka(servers = '{kafka.servers}', topic = '{results}', key = 'room') AT room2;
        CREATE QUERY kept AS SELECT * FROM odd
          INTO postgres(url = '{postgres.url}', table = 'kept') AT centre;
        """
    )
    expected = [
        {"id": n, "room": f"R{n % 7}", "_pos": position, "_ts": n * 1000}
        for position, n in enumerate(range(1, 5000, 2), 1)
    ]
    assert [json.loads(record.value()) for record in kafka.records(results)] == expected
    found = postgres.execute("SELECT id, room, _pos, _ts FROM kept ORDER BY _pos")
    assert found == [tuple(row.values()) for row in expected]
