"""`scripts/ensure-servers.sh` on machines of all kinds."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from .conftest import write_script

POM = Path(__file__).parents[1] / "servers" / "pom.xml"
FETCHING = "Fetching Kafka's jars (about 45 MB, first time only) …\n"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "servers"


@pytest.fixture
def ensure(machine, folder):
    for tool in ("cp", "mkdir", "rm"):
        os.symlink(shutil.which(tool) or tool, machine.path / tool)
    machine.java(machine.root, "17.0.15")
    machine.command("chromium", "true")
    pg_root = str(machine.root / "pg")
    return lambda: machine.run(
        "ensure-servers.sh", str(folder), PYTHON=sys.executable, PG_ROOT=pg_root
    )


def have_postgres(machine):
    for program in ("initdb", "postgres"):
        write_script(machine.root / "pg" / "15" / "bin" / program, "true")


def have_maven(machine, effect="true"):
    """It copies one jar to where it is told."""
    copied = 'for word; do case "$word" in -DoutputDirectory=*) : > "${word#*=}/a.jar";; esac; done'
    machine.command("mvn", f"{effect}\n{copied}")


def test_all_is_fetched_once(machine, ensure, folder):
    have_postgres(machine)
    have_maven(machine)
    done = ensure()
    assert (done.returncode, done.stdout, done.stderr) == (0, FETCHING, "")
    assert sorted(file.name for file in (folder / "kafka").iterdir()) == ["a.jar", "pom.xml"]
    again = ensure()
    assert (again.returncode, again.stdout) == (0, "")


def test_another_version_is_fetched_anew(machine, ensure, folder):
    have_postgres(machine)
    have_maven(machine)
    (folder / "kafka").mkdir(parents=True)
    (folder / "kafka" / "old.jar").touch()
    (folder / "kafka" / "pom.xml").write_text("<project/>")
    assert ensure().stdout == FETCHING
    assert not (folder / "kafka" / "old.jar").exists()
    assert (folder / "kafka" / "pom.xml").read_text() == POM.read_text()


def test_an_interrupted_fetch_does_not_count(machine, ensure, folder):
    have_postgres(machine)
    have_maven(machine, "echo 'no network' >&2; exit 1")
    done = ensure()
    assert (done.returncode, done.stderr) == (
        1,
        f"no network\nKafka's jars could not be fetched; the tests need them in {folder}/kafka.\n",
    )
    have_maven(machine)
    assert ensure().returncode == 0


def test_no_postgres_and_not_allowed_to_install(machine, ensure):
    have_maven(machine)
    done = ensure()
    assert (done.returncode, done.stderr) == (
        1,
        "The tests need a PostgreSQL server: apt-get install postgresql\n",
    )


def test_no_maven_and_not_allowed_to_install(machine, ensure):
    have_postgres(machine)
    done = ensure()
    assert (done.returncode, done.stderr) == (
        1,
        "The tests need Maven to fetch a Kafka broker: apt-get install maven\n",
    )


def test_root_installs_postgres(machine, ensure):
    have_maven(machine)
    (machine.path / "mkdir").unlink()
    programs = machine.root / "pg" / "15" / "bin"
    effect = f"/bin/mkdir -p {programs}\nfor name in initdb postgres; do\n"
    effect += f"/bin/cp {machine.path}/mvn {programs}/$name; done"
    machine.can_install("postgresql", effect)
    (machine.path / "mkdir").unlink()
    os.symlink("/bin/mkdir", machine.path / "mkdir")
    machine.become_root()
    done = ensure()
    assert (done.returncode, done.stderr) == (0, "")
    said = "No PostgreSQL server found.\nInstalling postgresql …\n"
    assert done.stdout == said + FETCHING
