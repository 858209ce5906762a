"""From Kafka over two sites into Kafka and PostgreSQL."""

from __future__ import annotations

import json

import pytest

from anabranch.errors import ScriptError
from bench.systems.postgres import Postgres
from bench.systems.system import System
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


def test_rows_of_an_earlier_query_go_only_when_told_to(system: System, postgres: Postgres) -> None:
    def create(columns: str, mode: str = "") -> str:
        return (
            f"CREATE QUERY again AS SELECT {columns} FROM a INTO postgres("
            f"url = '{postgres.url}', table = 'again'{mode}) AT centre;"
        )

    def count(where: str = "true") -> int:
        return int(postgres.execute(f"SELECT count(*) FROM again WHERE {where}")[0][0])

    system.run(
        "CREATE STREAM a (value BIGINT) FROM rate(tps = 1000, rows = 20) AT room1;"
        + create("value")
    )
    assert count() == 20
    drop = "DROP QUERY again; DROP STREAM a;"
    source = "CREATE STREAM a (value BIGINT) FROM rate(tps = 1000, rows = 5) AT room1;"
    with pytest.raises(ScriptError, match="holds 20 rows of an earlier query again"):
        system.execute(drop + source + create("value"))
    dropped, *_, created = system.execute(drop + source + create("value", ", mode = 'append'"))
    assert dropped.text == "query again dropped; its rows in the table again stay"
    assert created.text.endswith(
        "\n20 rows of an earlier query again in the table again stay, and other rows bear"
        " another _run"
    )
    system.wait()
    assert (count(), count("_pos <= 5")) == (25, 10)
    *_, created = system.execute(drop + source + create("value", ", mode = 'replace'"))
    assert created.text.endswith("25 rows of an earlier query again in the table again are deleted")
    system.wait()
    assert count() == 5
