"""`scripts/ensure-jdk.sh` on machines of all kinds."""

from __future__ import annotations

import sys

import pytest

WHAT_TO_INSTALL = (
    "anabranch needs a JDK 17 or newer: apt-get install openjdk-17-jre-headless "
    "(or dnf install java-17-openjdk-headless), or set JAVA_HOME.\n"
)


@pytest.fixture
def ensure(machine):
    return lambda **env: machine.run("ensure-jdk.sh", PYTHON=sys.executable, **env)


def test_java_on_the_path(machine, ensure, tmp_path):
    machine.java(tmp_path, "17.0.15")
    done = ensure()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("java_home", ["/does/not/exist", "", "/dev/null"])
def test_a_broken_java_home_does_no_harm(machine, ensure, tmp_path, java_home):
    machine.java(tmp_path, "17.0.15")
    assert ensure(JAVA_HOME=java_home).returncode == 0


def test_java_of_the_distribution(machine, ensure):
    machine.java(machine.jvm_root / "java-21", "21")
    assert ensure().returncode == 0


def test_too_old_and_not_allowed_to_install(machine, ensure, tmp_path):
    machine.java(tmp_path, "11.0.2")
    done = ensure()
    assert (done.returncode, done.stderr) == (1, WHAT_TO_INSTALL)


def test_apt_but_neither_root_nor_sudo(machine, ensure):
    machine.can_install("openjdk-17-jre-headless", "true")
    done = ensure()
    assert (done.returncode, done.stderr, machine.log()) == (1, WHAT_TO_INSTALL, [])


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "openjdk-21-jre-headless"])
def test_root_installs_what_the_distribution_has(machine, ensure, tmp_path, package):
    new = machine.java(tmp_path / "new", "17.0.15")
    machine.can_install(package, f"/bin/ln -s {new} {machine.path}/java")
    machine.become_root()
    done = ensure()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"No JDK 17 or newer found.\nInstalling {package} …\n"
    assert machine.log() == [
        "mkdir -p /usr/share/man/man1",
        "-qq update",
        f"-qq install --yes --no-install-recommends {package}",
    ]


def test_sudo_is_used_without_a_prompt(machine, ensure, tmp_path):
    new = machine.java(tmp_path / "new", "17.0.15")
    machine.can_install("openjdk-17-jre-headless", f"/bin/ln -s {new} {machine.path}/java")
    machine.allow_sudo()
    assert ensure().returncode == 0
    assert {line for line in machine.log() if line.startswith("sudo")} == {"sudo -n"}


def test_a_failing_installation_is_told(machine, ensure):
    machine.can_install("openjdk-17-jre-headless", "echo 'E: no space left' >&2; exit 100")
    machine.become_root()
    done = ensure()
    assert (done.returncode, done.stderr) == (1, "E: no space left\n" + WHAT_TO_INSTALL)
