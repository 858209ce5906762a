"""Bad input: one line that says where, what and what to do; and nothing half-made stays behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import ClusterConfig
from anabranch.errors import AnabranchError, ScriptError, SinkError, SourceError
from bench.systems.system import System
from tests.e2e.commands import COMMAND, anabranch, environment
from tests.link.support import eventually

STREAM = "CREATE STREAM s (id BIGINT, t DOUBLE) TIMESTAMP ts FROM file(path = 's.csv') AT room1;"
QUERY = "CREATE QUERY q AS SELECT id FROM s INTO jsonl(path = 'q.jsonl') AT centre;"


@pytest.fixture
def csv(system: System) -> Path:
    path = system.folder / "s.csv"
    path.write_text("id,t,ts\n1,1.5,1000\n2,hot,2000\n3,2.5,3000\n")
    (system.folder / "q.jsonl").unlink(missing_ok=True)
    return path


def nothing_is_there(system: System) -> bool:
    status = system.coordinator.status()
    parts = [part for site in status.sites for part in (*site.sources, *site.tasks)]
    return not (status.streams or status.reads or parts)


def refused(system: System, script: str, kind: type[AnabranchError]) -> str:
    """The line of the error that refuses `script`, after which there is nothing of it."""
    with pytest.raises(kind) as caught:
        system.execute(script)
    assert nothing_is_there(system)
    assert not (system.folder / "q.jsonl").exists()
    return caught.value.line()


def test_missing_file(system: System, csv: Path) -> None:
    line = refused(system, STREAM.replace("s.csv", "none.csv") + QUERY, SourceError)
    assert line == (
        f"{system.folder / 'none.csv'}: stream s: no such file."
        f" Relative paths start at {system.folder}."
    )


def test_unknown_option_and_source(system: System, csv: Path) -> None:
    line = refused(system, STREAM.replace("path =", "pth =") + QUERY, ScriptError)
    assert line == ("script.sql:1:62: stream s: file() has no option 'pth'. Did you mean 'path'?")
    line = refused(system, STREAM.replace("file(", "fill(") + QUERY, ScriptError)
    assert line == "script.sql:1:57: stream s: there is no source 'fill'. Did you mean 'file'?"
    line = refused(system, STREAM + QUERY.replace("jsonl", "jsnol"), ScriptError)
    assert line == "script.sql:1:127: query q: there is no sink 'jsnol'. Did you mean 'jsonl'?"


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [("fill(path = 's.csv')", ScriptError), ("file(path = 'none.csv')", SourceError)],
)
def test_what_runs_goes_on_when_its_successor_is_wrong(
    system: System, csv: Path, mistake: str, kind: type[AnabranchError]
) -> None:
    """A script with a mistake does nothing: nor does it drop."""
    ticks = "CREATE STREAM s (value BIGINT) FROM rate(tps = 100) AT room1;"
    query = "CREATE QUERY q AS SELECT value FROM s INTO jsonl(path = 'q.jsonl') AT room1;"
    system.execute(ticks + query)
    try:
        wrong = ticks.replace("rate(tps = 100)", mistake)
        with pytest.raises(kind):
            system.execute("DROP QUERY q; DROP STREAM s;" + wrong + query)
        file = system.folder / "q.jsonl"
        before = file.stat().st_size
        eventually(lambda: file.stat().st_size > before)
        lines = file.read_text().splitlines()
        assert [json.loads(line)["_pos"] for line in lines] == list(range(1, len(lines) + 1))
    finally:
        system.execute("DROP QUERY q; DROP STREAM s;")


def test_a_sink_whose_folder_is_missing(system: System, csv: Path) -> None:
    line = refused(system, STREAM + QUERY.replace("q.jsonl", "none/q.jsonl"), SinkError)
    folder = system.folder / "none"
    assert line == f"{folder}: query q: the folder does not exist. Run mkdir -p {folder}."


def test_unknown_column_is_underlined(system: System, csv: Path) -> None:
    with pytest.raises(ScriptError) as caught:
        system.execute(STREAM + "\n" + QUERY.replace("SELECT id", "SELECT idd"))
    assert caught.value.line() == (
        "script.sql:2:26: unknown column 'idd' of stream s. Did you mean 'id'?"
    )
    assert caught.value.excerpt.splitlines()[1] == " " * 25 + "^^^"
    assert nothing_is_there(system)


def test_malformed_row_names_its_line(system: System, csv: Path) -> None:
    with pytest.raises(SourceError) as caught:
        system.run(STREAM + QUERY)
    line = caught.value.line()
    assert line.startswith(f"{csv}:3: stream s: ")
    assert "'hot'" in line
    assert "on_error = 'skip'" in line


def test_disk_full_at_a_sink(system: System, csv: Path) -> None:
    skip = STREAM.replace("'s.csv'", "'s.csv', on_error = 'skip'")
    system.execute(skip + QUERY.replace("q.jsonl", "/dev/full"))

    def away() -> list[str]:
        sites = system.coordinator.status().sites
        tasks = [task for site in sites for task in site.tasks]
        return [task.away.reason for task in tasks if task.away]

    eventually(lambda: away() == ["/dev/full: query q: disk full. Free some space."])


def test_port_in_use(spark: SparkSession, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "s.sql").write_text("SHOW SITES;")
        (tmp_path / "c.toml").write_text(f'[cluster]\nlisten = "127.0.0.1:{port}"\n[site.a]\n')
        done = anabranch("run", "s.sql", "--cluster", "c.toml", "--for", "1s", cwd=tmp_path)
    assert done.returncode == 1
    assert f"error: cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "`listen` in cluster.toml" in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_port_in_use_leaves_no_state(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "c.toml").write_text(f'[cluster]\nlisten = "127.0.0.1:{port}"\n[site.a]\n')
        done = anabranch("up", "--cluster", "c.toml", cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()  # gRPC's own are not among them
    assert line.startswith(f"error: cannot listen on 127.0.0.1:{port}: address already in use.")
    assert not (tmp_path / ".anabranch").exists()


def test_site_unreachable(spark: SparkSession, tmp_path: Path) -> None:
    system = System(ClusterConfig.of_sites(["a", "b"]), spark, tmp_path)
    try:
        assert system.running
        system.running.close_local("b")
        row = next(site for site in system.coordinator.status().sites if site.site == "b")
        assert row.state == "unreachable"
        assert "Connection refused" in row.problem
        assert len(row.problem) < 150
    finally:
        system.close()


def test_no_coordinator_to_join(tmp_path: Path) -> None:
    done = anabranch("site", "x", "--coordinator", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 1
    assert "error: the coordinator at 127.0.0.1:1 is unreachable" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_no_jdk(tmp_path: Path) -> None:
    """With no java to be found, the run says what to install and leaves nothing."""
    (tmp_path / "s.sql").write_text("SHOW SITES;")
    hidden = environment(tmp_path / "tmp") | {"JAVA_HOME": "", "PATH": str(tmp_path)}
    code = (
        "import pathlib, anabranch.spark.jdk as jdk, anabranch.cli.main as main;"
        f"jdk.find_java.__defaults__ = (pathlib.Path({str(tmp_path)!r}),); main.app_main()"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", code, "run", "s.sql", "--for", "1s"],
        cwd=tmp_path,
        env=hidden,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "error: no JDK 17 or newer found" in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ('conf = { "spark.driver.memory" = "200m" }', "must be at least"),
        ('master = "lokal"', "lokal"),
    ],
    ids=["too little memory", "master"],
)
def test_spark_does_not_start(tmp_path: Path, setting: str, reason: str) -> None:
    (tmp_path / "s.sql").write_text("SHOW SITES;")
    (tmp_path / "c.toml").write_text(f"[site.room1]\n{setting}\n")
    done = anabranch("run", "s.sql", "--cluster", "c.toml", "--for", "1s", cwd=tmp_path)
    assert done.returncode == 1
    error = " ".join(done.stderr.split())
    assert "error: Spark did not start with master" in error
    assert reason in error
    assert "Check `master` and `conf` in cluster.toml." in error
    assert "Traceback" not in error
    assert os.listdir(tmp_path / "tmp") == []
