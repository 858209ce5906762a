"""The HTTP API on a real system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

from anabranch.config.cluster import ClusterConfig
from anabranch.face.access import TokenAccess
from anabranch.face.routes import make_app
from anabranch.face.system import System as Face
from bench.systems.system import System

pytestmark = pytest.mark.spark
READER = {"authorization": "Bearer looks"}
OPERATOR = {"authorization": "Bearer right"}
SCRIPT = """
CREATE STREAM s (value BIGINT) FROM rate(tps = 50) AT room1;
CREATE QUERY q AS SELECT value FROM s WHERE value % 2 = 0 AT room1;
"""


@pytest.fixture(scope="module")
def face(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    folder: Path = tmp_path_factory.mktemp("api")
    running = System(ClusterConfig.of_sites(["room1", "room2"]), spark, folder)
    made = Face(running.coordinator, folder)
    try:
        running.execute(SCRIPT)
        made.watch.step()
        yield made
    finally:
        made.close()
        running.close()


@pytest.fixture
def client(face: Face) -> TestClient:
    access = TokenAccess(make_app(face), "right", secure=False, reader="looks")
    return TestClient(access, raise_server_exceptions=False)


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN q;",
        "-- how?\nEXPLAIN q;",
        "/* how? */ explain SELECT value FROM s",
        "SELECT value + 1 AS more FROM q;",
        "CREATE QUERY other AS SELECT value FROM q;",
    ],
)
def test_one_query_is_explained(client: TestClient, text: str) -> None:
    answer = client.post("/api/explain", json={"text": text}, headers=OPERATOR)
    assert answer.status_code == 200, answer.text
    assert "room1" in answer.json()["text"]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("EXPLAIN q; DROP QUERY q;", "sql:1:12", "these are 2 statements"),
        ("EXPLAIN q; EXPLAIN q;", "sql:1:12", "these are 2 statements"),
        ("SELECT value FROM s;\nDROP QUERY q;", "sql:2:1", "these are 2 statements"),
        ("DROP QUERY q;", "sql:1:1", "no query to explain"),
        ("CREATE STREAM t (value BIGINT);", "sql:1:1", "no query to explain"),
        ("SHOW QUERIES;", "sql:1:1", "no query to explain"),
        (" -- nothing", "sql:1:1", "these are 0 statements"),
    ],
)
def test_nothing_but_one_query_is_explained_and_nothing_is_done(
    client: TestClient, face: Face, text: str, place: str, message: str
) -> None:
    answer = client.post("/api/explain", json={"text": text}, headers=READER)
    assert answer.status_code == 400, answer.text
    assert answer.json()["place"] == place
    assert message in answer.json()["message"]
    assert set(face.coordinator.status(ask=False).reads) == {"q"}
