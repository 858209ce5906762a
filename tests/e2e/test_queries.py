"""Queries over real sites, links and Spark, compared whole with plain Python."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.errors import ScriptError, TaskError
from bench.systems.system import System, read_jsonl


def write_csv(path: Path, rows: list[tuple[object, ...]], header: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)


READINGS = """
CREATE STREAM readings (id BIGINT, room STRING, temp DOUBLE) TIMESTAMP ts LATENESS 5s
  FROM file(path = 'readings.csv') AT room1;
"""


def test_chain_over_three_sites_equals_plain_python(system: System) -> None:
    rng = random.Random(7)
    rows = [
        (i, rng.choice("abc"), rng.choice(["", round(rng.uniform(-5, 60), 2)]), i * 1000)
        for i in range(5000)
    ]
    write_csv(system.folder / "readings.csv", rows, "id,room,temp,ts")
    system.run(
        READINGS
        + """
        CREATE QUERY warm AS SELECT id, room, temp * 2 AS double_temp FROM readings r
          WHERE r.temp > 10 AT room2;
        CREATE QUERY named AS SELECT upper(room) AS room, id, double_temp FROM warm
          WHERE room <> 'b' INTO jsonl(path = 'named.jsonl') AT centre;
        """
    )
    expected = [
        {"room": room.upper(), "id": i, "double_temp": temp * 2, "_ts": ts}
        for i, room, temp, ts in rows
        if temp != "" and temp > 10 and room != "b"
    ]
    for position, row in enumerate(expected, start=1):
        row["_pos"] = position
    assert read_jsonl(system.folder / "named.jsonl") == expected
    first = (system.folder / "named.jsonl").read_text().splitlines()[0]
    assert (
        first.index('"room"') < first.index('"id"') < first.index('"_pos"') < first.index('"_ts"')
    )


def test_one_stream_feeds_several_queries_alike(system: System) -> None:
    rows = [(i, "a", i % 50, i) for i in range(2000)]
    write_csv(system.folder / "readings.csv", rows, "id,room,temp,ts")
    queries = [
        f"CREATE QUERY q{k} AS SELECT id FROM readings WHERE id % {k} = 0 "
        f"INTO jsonl(path = 'q{k}.jsonl') AT {site};"
        for k, site in ((2, "room1"), (3, "room2"), (5, "centre"))
    ]
    system.run(READINGS + "\n".join(queries))
    for k in (2, 3, 5):
        ids = [row["id"] for row in read_jsonl(system.folder / f"q{k}.jsonl")]
        assert ids == [i for i in range(2000) if i % k == 0]


def test_late_and_malformed_tuples_are_counted_and_shown(system: System) -> None:
    rows = [
        (1, "a", 1.0, 10_000_000),
        (2, "a", 2.0, 4_999_999),
        (3, "a", 3.0, 5_000_000),
        (4, "a", "hot", 11_000_000),
        (5, "a", 5.0, 12_000_000),
    ]
    write_csv(system.folder / "readings.csv", rows, "id,room,temp,ts")
    skipping = READINGS.replace("csv')", "csv', on_error = 'skip')")
    status = system.run(
        skipping + "CREATE QUERY q AS SELECT id FROM readings INTO jsonl(path = 'q.jsonl');"
    )
    assert [row["id"] for row in read_jsonl(system.folder / "q.jsonl")] == [1, 3, 5]
    (source,) = [one for site in status.sites for one in site.sources]
    assert (source.late, source.skipped, source.rows) == (1, 1, 3)


def test_a_failing_query_says_why_and_holds_no_other_up(system: System) -> None:
    rows = [(i, "a", i, i) for i in range(100)]
    write_csv(system.folder / "readings.csv", rows, "id,room,temp,ts")
    with pytest.raises(TaskError, match=r"query bad failed: .*[Dd]ivision by zero"):
        system.run(
            READINGS
            + """CREATE QUERY bad AS SELECT 1 / (id - 50) AS x FROM readings AT room2;
            CREATE QUERY good AS SELECT id FROM readings INTO jsonl(path = 'good.jsonl') AT centre;
            """
        )
    system.execute("DROP QUERY bad")
    system.wait()
    assert len(read_jsonl(system.folder / "good.jsonl")) == 100


def test_an_empty_stream_ends_and_leaves_an_empty_file(system: System) -> None:
    write_csv(system.folder / "readings.csv", [], "id,room,temp,ts")
    system.run(READINGS + "CREATE QUERY q AS SELECT id FROM readings INTO jsonl(path = 'q.jsonl');")
    assert (system.folder / "q.jsonl").read_text() == ""


def test_explain_show_describe(system: System) -> None:
    write_csv(system.folder / "readings.csv", [(1, "a", 1, 1)], "id,room,temp,ts")
    answers = system.execute(
        READINGS
        + """
        CREATE QUERY warm AS SELECT id FROM readings WHERE temp > 10 AT centre;
        EXPLAIN warm; SHOW QUERIES; DESCRIBE readings; SHOW SITES;
        """
    )
    name = next(one for one in answers[2].text.split() if one.startswith("readings~"))
    text = answers[2].text.replace(name, "readings~1")
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "As written:",
        "projection id [warm] @ centre",
        "└─ selection temp > 10 [warm] @ centre",
        "└─ link readings @ room1 → centre",
        "└─ stream readings from file(path = 'readings.csv') @ room1",
        "",
        "As run:",
        "projection id [warm] @ centre",
        "└─ link readings~1 @ room1 → centre",
        "└─ projection id [readings~1] @ room1",
        "└─ selection temp > 10 [readings~1] @ room1",
        "└─ stream readings from file(path = 'readings.csv') @ room1",
        "",
        "Spark: plans are kept of readings~1.",
    ]
    assert answers[3].rows == (("warm", "centre", "readings", "", "", "id bigint"),)
    assert answers[4].rows == (("id", "bigint"), ("room", "string"), ("temp", "double"))
    assert {row[0] for row in answers[5].rows} == {"room1", "room2", "centre"}


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("CREATE QUERY q AS SELECT tmp FROM readings;", "unknown column 'tmp'"),
        ("CREATE QUERY q AS SELECT id + array(1) AS x FROM readings;", "data type mismatch"),
        ("CREATE QUERY q AS SELECT nosuch(id) AS x FROM readings;", "nosuch"),
        ("CREATE QUERY q AS SELECT id FROM readings WHERE temp;", "WHERE needs a condition"),
        ("CREATE QUERY q AS SELECT id FROM readings AT centr;", "Did you mean 'centre'?"),
        ("CREATE STREAM s (a DOUBEL) FROM rate(tps = 1) AT room1;", "unknown type 'DOUBEL'"),
        ("CREATE QUERY readings AS SELECT id FROM readings;", "readings exists already"),
        ("CREATE QUERY q AS SELECT id FROM reading;", "Did you mean 'readings'?"),
    ],
)
def test_a_wrong_statement_changes_nothing(system: System, script: str, line: str) -> None:
    write_csv(system.folder / "readings.csv", [(1, "a", 1, 1)], "id,room,temp,ts")
    with pytest.raises(ScriptError) as caught:
        system.execute(READINGS + script)
    assert line in caught.value.line()
    assert caught.value.line().startswith("script.sql:4:")
    assert "^" in caught.value.excerpt
    status = system.coordinator.status()
    assert (status.streams, status.reads) == ((), {})
    assert not any(site.sources or site.tasks for site in status.sites)


def test_spark_knows_its_jobs_by_query_and_task(spark: SparkSession, tmp_path: Path) -> None:
    write_csv(tmp_path / "few.csv", [(n, "a", 1.5, n) for n in range(7)], "id,room,temp,ts")
    cluster = ClusterConfig(sites={"room1": SiteConfig(name="room1", plans="job")})
    system = System(cluster, spark, tmp_path)
    try:
        status = system.run(
            READINGS.replace("readings.csv", "few.csv")
            + "CREATE QUERY named_job AS SELECT id * 2 AS m FROM readings WHERE id > 1 AT room1;"
        )
    finally:
        system.close()
    ((task,),) = [site.tasks for site in status.sites]
    assert [(one.plan, one.why) for one in task.plans] == [("job", 'plans = "job"')]
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)  # type: ignore[union-attr]
    described = [str(jobs.apply(i).description()) for i in range(jobs.size())]
    assert "Some(named_job: 7 tuples)" in described
