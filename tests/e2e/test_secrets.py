"""A password does its work, and is nowhere to be seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from starlette.testclient import TestClient

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.secrets import FILE
from anabranch.errors import AnabranchError
from anabranch.face.access import TokenAccess
from anabranch.face.routes import make_app
from anabranch.face.system import System as Face
from anabranch.runtime.log import log_no_more, log_to
from bench.systems.postgres import Postgres
from bench.systems.system import System

pytestmark = pytest.mark.spark
FOUND, WRITTEN, WRONG = "x7-of-the-environment", "x7-written-out", "x7-is-the-wrong-one"
OPERATOR = {"authorization": "Bearer right"}


@pytest.fixture
def guarded(postgres: Postgres) -> Iterator[Postgres]:
    """It asks two of its users for a password."""
    hba = postgres._data / "pg_hba.conf"
    before = hba.read_text()
    for user, password in (("found", FOUND), ("written", WRITTEN)):
        postgres.execute(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{password}'")
        hba.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
    postgres.execute("SELECT pg_reload_conf()")
    try:
        yield postgres
    finally:
        hba.write_text(before)
        postgres.execute("SELECT pg_reload_conf()")


@pytest.fixture
def running(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[System, Face]]:
    (tmp_path / "of").mkdir()
    log = log_to(tmp_path / "of" / "log.jsonl")
    system = System(ClusterConfig.of_sites(["room1", "room2"]), spark, tmp_path)
    face = Face(system.coordinator, tmp_path)
    face.start()
    try:
        yield system, face
    finally:
        face.close()
        system.close()
        log_no_more(log)


def test_a_password_does_its_work_and_is_nowhere_to_be_seen(
    running: tuple[System, Face],
    guarded: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    system, face = running
    at = f"127.0.0.1:{guarded.port}/postgres"
    monkeypatch.setenv("X7_PASSWORD", FOUND)
    said: list[Any] = []

    def told(text: str) -> None:
        try:
            said.append([asdict(answer) for answer in face.execute(text)])
        except AnabranchError as error:
            said.append([error.line(), error.to_dict()])

    told("CREATE SECRET pg FROM env('X7_PASSWORD'); CREATE SECRET never AS 'x7-never-used';")
    told(
        "CREATE STREAM s (value BIGINT) FROM rate(tps = 500, rows = 500) AT room1;"
        f"CREATE QUERY found AS SELECT value FROM s INTO postgres(url = 'postgresql://found@{at}',"
        " password = secret('pg'), table = 'x7_found') ON room2;"
        "CREATE QUERY written AS SELECT value FROM s INTO"
        f" postgres(url = 'postgresql://written:{WRITTEN}@{at}', table = 'x7_written') ON room2;"
    )
    for wrong in (
        f"postgres(url = 'postgresql://written:{WRONG}@{at}', table = 'x7_wrong')",
        f"postgres(url = 'postgresql://found@{at}', password = '{WRONG}', table = 'x7_wrong')",
        f"postgres(url = 'host=127.0.0.1 password={WRONG} what=ever', table = 't')",
        f"postgres(url = 'nowhere', password = '{WRONG}', table = 't')",
        f"kafka(servers = '127.0.0.1:1', topic = 't', `sasl.password` = '{WRONG}',"
        " `security.protocol` = 'none')",
        f"kafka(servers = '127.0.0.1:1', topic = 't', `ssl.key.pem` = '{WRONG}')",
        f"jsonl(path = 'x.jsonl', password = '{WRONG}')",
        f"spark(format = 'jdbc', password = '{WRONG}', url = 'jdbc:none://u:{WRONG}@h')",
    ):
        told(f"CREATE QUERY wrong AS SELECT value FROM s INTO {wrong};")
        told(f"EXPLAIN CREATE QUERY wrong AS SELECT value FROM s INTO {wrong};")
    told(f"CREATE QUERY q AS SELECT value FROM s INTO console(password '{WRONG}');")
    system.wait()
    for table in ("x7_found", "x7_written"):
        assert guarded.execute(f"SELECT count(*) FROM {table}") == [(500,)]
    for text in (
        "SHOW STREAMS;",
        "SHOW QUERIES;",
        "SHOW SECRETS;",
        "DESCRIBE found;",
        "DESCRIBE written;",
        "EXPLAIN found;",
        "EXPLAIN written;",
    ):
        told(text)
    assert [list(row) for row in said[-5][0]["rows"]] == [["never"], ["pg"]]
    assert "password = secret('pg')" in str(said)
    assert "postgresql://written:***@" in str(said)

    face.watch.step()
    client = TestClient(TokenAccess(make_app(face), "right", secure=False))
    for path in (
        "system",
        "queries/found",
        "queries/found/explain",
        "queries/written/explain",
        "history",
        "network",
        "timeline",
        "report",
        "metrics",
        "sites/room1/metrics",
        "targets",
        "events?count=1",
        "docs",
        "openapi.json",
    ):
        answer = client.get(f"/api/{path}", headers=OPERATOR)
        assert answer.status_code == 200, path
        said.append(answer.text)
    said += [face.coordinator.status(), list(face.statements)]
    said += [
        record.report
        for site in ("room1", "room2")
        if (record := system.coordinator.sites.record(site))
    ]
    said.append(capfd.readouterr())
    whole = json.dumps(said, default=str)
    assert re.findall(r".{0,200}x7-.{0,60}", whole) == []

    secrets = system.state / FILE
    assert WRITTEN in secrets.read_text()
    assert FOUND not in secrets.read_text()
    for file in (*tmp_path.rglob("*"), *system.state.rglob("*")):
        if file.is_file() and file != secrets:
            assert b"x7-" not in file.read_bytes(), file

    told("DROP QUERY IF EXISTS wrong; DROP QUERY found; DROP QUERY written;")
    told("DROP SECRET pg; DROP SECRET never; SHOW SECRETS;")
    assert said[-1][-1]["rows"] == ()
    assert json.loads(secrets.read_text()) == {}
