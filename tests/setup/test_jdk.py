"""Which JDK Spark runs on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.errors import SetupError
from anabranch.spark import jdk

from .conftest import Machine, write_script


@pytest.fixture(autouse=True)
def _on_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_comes_first(machine, tmp_path, monkeypatch):
    machine.java(tmp_path / "mine", "21.0.2")
    machine.java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    assert jdk.find_java(machine.jvm_root) == tmp_path / "mine"


@pytest.mark.parametrize("home", ["/does/not/exist", "", "old", "broken", "text"])
def test_a_java_home_of_no_use_is_passed_over(machine, tmp_path, monkeypatch, home):
    machine.java(tmp_path / "old", "11.0.2")
    write_script(tmp_path / "broken" / "bin" / "java", "exit 1")
    (tmp_path / "text").write_text("a file")
    machine.java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / home) if home else "")
    assert jdk.find_java(machine.jvm_root) == tmp_path


def test_an_old_java_on_the_path_is_passed_over(machine, tmp_path):
    machine.java(tmp_path, "1.8.0_361")
    machine.java(machine.jvm_root / "java-17", "17.0.15")
    assert jdk.find_java(machine.jvm_root) == machine.jvm_root / "java-17"


def test_the_oldest_new_enough_of_the_distribution_is_taken(machine):
    for version in ("11.0.2", "25", "17.0.15", "21-ea"):
        machine.java(machine.jvm_root / f"jdk-{version}", version)
    assert jdk.find_java(machine.jvm_root) == machine.jvm_root / "jdk-17.0.15"


def test_the_home_behind_a_shim_is_what_java_says(machine, tmp_path):
    real = machine.java(tmp_path / "versions" / "17", "17.0.15")
    machine.command("java", f'exec {real} "$@"')
    assert jdk.find_java(machine.jvm_root) == tmp_path / "versions" / "17"


def test_the_home_of_a_silent_java_is_above_the_file_it_links_to(machine, tmp_path):
    real = write_script(tmp_path / "jdk" / "bin" / "java", "echo 'version \"17\"' >&2")
    os.symlink(real, machine.path / "java")
    assert jdk.find_java(machine.jvm_root) == tmp_path / "jdk"


def test_a_line_before_the_version_does_no_harm(machine, tmp_path):
    write_script(
        machine.path / "java",
        "echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=1' >&2\n"
        f"echo '    java.home = {tmp_path}' >&2\necho 'java version \"17.0.1\"' >&2",
    )
    assert jdk.find_java(machine.jvm_root) == tmp_path


def test_a_java_that_hangs_is_passed_over(machine, monkeypatch):
    machine.command("java", "exec sleep 60")
    monkeypatch.setattr(jdk, "_PATIENCE_S", 0.2)
    with pytest.raises(SetupError):
        jdk.find_java(machine.jvm_root)


def test_none_at_all(machine):
    with pytest.raises(SetupError) as raised:
        jdk.find_java(Path("/does/not/exist"))
    assert str(raised.value) == (
        "no JDK 17 or newer found. Install one, e.g. `apt-get install openjdk-17-jre-headless`, "
        "or set JAVA_HOME."
    )


def test_use_java_sets_java_home(machine, tmp_path, monkeypatch):
    machine.java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", "/does/not/exist")
    jdk.use_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path)
