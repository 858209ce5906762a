"""Whose files are whose: nothing that anybody reads or has written is lost to a sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.errors import ScriptError
from bench.systems.system import System, read_jsonl

TEXT = "id,day,ts\n1,mon,1000\n2,tue,2000\n3,mon,3000\n"
STREAM = "CREATE STREAM s (id BIGINT, day STRING) TIMESTAMP ts FROM file(path = '{}') AT room1;"


@pytest.fixture
def mine(system: System) -> Iterator[Path]:
    file = system.folder / "mine.csv"
    file.write_text(TEXT)
    yield file
    assert file.read_text() == TEXT


def refused(system: System, text: str) -> str:
    with pytest.raises(ScriptError) as caught:
        system.execute(text)
    return caught.value.line()


@pytest.mark.parametrize("path", ["mine.csv", "./mine.csv", "link.csv"])
@pytest.mark.parametrize("site", ["room1", "centre"])
def test_a_sink_into_its_own_source(system: System, mine: Path, path: str, site: str) -> None:
    (system.folder / "link.csv").unlink(missing_ok=True)
    (system.folder / "link.csv").symlink_to(mine)
    query = f"SELECT id FROM s INTO csv(path = '{path}', overwrite = TRUE) AT {site};"
    line = refused(system, STREAM.format("mine.csv") + query)
    assert f"csv() would write {mine}, which stream s (script.sql:1:64) reads. Choose" in line


def test_a_sink_into_another_streams_folder(system: System, mine: Path) -> None:
    system.execute(STREAM.format("*.csv"))
    line = refused(system, "SELECT id FROM s INTO csv(path = 'new.csv');")
    assert f"which stream s, created before, reads as {system.folder}/*.csv." in line
    assert not (system.folder / "new.csv").exists()


def test_a_sink_into_another_querys_file(system: System, mine: Path) -> None:
    query = "CREATE QUERY {} AS SELECT id FROM s INTO jsonl(path = 'shared.jsonl');"
    system.run(STREAM.format("mine.csv") + query.format("q"))
    written = (system.folder / "shared.jsonl").read_bytes()
    assert "which query q, created before, writes" in refused(system, query.format("r"))
    system.execute("DROP QUERY q; DROP STREAM s;")
    line = refused(system, STREAM.format("mine.csv") + query.format("r"))
    assert "where something is that query r has not written. Choose another path, or add" in line
    assert (system.folder / "shared.jsonl").read_bytes() == written
    other = query.format("r").replace("')", "', overwrite = TRUE)")
    system.run(STREAM.format("mine.csv") + other)
    assert [row["id"] for row in read_jsonl(system.folder / "shared.jsonl")] == [1, 2, 3]


def test_the_same_script_again(system: System, mine: Path) -> None:
    for _ in range(2):
        system.run(
            STREAM.format("mine.csv")
            + "CREATE QUERY again AS SELECT id FROM s INTO jsonl(path = 'again.jsonl');"
        )
        system.drop_all()
    assert [row["id"] for row in read_jsonl(system.folder / "again.jsonl")] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "spark"])
def test_a_folder_for_each_value(system: System, mine: Path, kind: str) -> None:
    options = {"spark": "format = 'parquet', mode = 'overwrite', "}.get(kind, "")
    system.run(
        STREAM.format("mine.csv")
        + f"CREATE QUERY days_{kind} AS SELECT * FROM s"
        + f" INTO {kind}({options}path = 'days_{kind}', partition_by = 'day');"
    )
    system.drop_all()
    found = {one.name for one in (system.folder / f"days_{kind}").iterdir() if one.is_dir()}
    assert found == {"day=mon", "day=tue"}


@pytest.mark.parametrize("verb", ["", "EXPLAIN "])
def test_options_that_spark_would_pass_over(system: System, mine: Path, verb: str) -> None:
    system.execute(STREAM.format("mine.csv"))
    query = f"{verb}SELECT id, day FROM s INTO spark(format = 'orc', path = 'o', {{}} = 'day');"
    line = refused(system, query.format("partitionBy"))
    assert "spark() has no option 'partitionBy'. Write partition_by = …" in line
    assert "spark(orc) has no option 'compresion'. Did you mean 'compression'?" in refused(
        system, query.format("compresion")
    )
