"""`scripts/ensure-python.sh` on machines of all kinds."""

from __future__ import annotations

import pytest

HINT = "name another with 'make PYTHON=/path/to/python3'."


@pytest.fixture
def python3(machine):
    """Puts a python3 on the machine that has venv once the file `venv` is there."""

    def install(version: str, *, venv: bool) -> None:
        mark = machine.root / "venv"
        old = int(tuple(map(int, version.split("."))) < (3, 11))
        machine.command(
            "python3",
            f'case "$2" in *ensurepip*) [ -e {mark} ];; *print*) echo {version};; '
            f"*) exit {old};; esac",
        )
        if venv:
            mark.touch()

    return install


def test_all_there(machine, python3):
    python3("3.11", venv=True)
    done = machine.run("ensure-python.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_python(machine):
    done = machine.run("ensure-python.sh")
    assert (done.returncode, done.stderr) == (
        1,
        "anabranch needs Python 3.11 or newer, but there is no 'python3': "
        f"install python3, or {HINT}\n",
    )


def test_a_python_that_does_not_run(machine):
    machine.command("python3", "exit 127")
    done = machine.run("ensure-python.sh")
    assert (done.returncode, done.stderr) == (1, f"'python3' does not run; {HINT}\n")


def test_old_python(machine, python3):
    python3("3.9", venv=True)
    done = machine.run("ensure-python.sh")
    assert (done.returncode, done.stderr) == (
        1,
        f"anabranch needs Python 3.11 or newer, but 'python3' is 3.9: {HINT}\n",
    )


def test_no_venv_and_not_allowed_to_install(machine, python3):
    python3("3.11", venv=False)
    done = machine.run("ensure-python.sh")
    assert (done.returncode, done.stderr) == (
        1,
        "anabranch needs Python's venv module: apt-get install python3.11-venv\n",
    )


def test_root_installs_venv(machine, python3):
    python3("3.11", venv=False)
    machine.can_install("python3.11-venv", f": > {machine.root}/venv")
    machine.become_root()
    done = machine.run("ensure-python.sh")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("Python 3.11 lacks its venv module.\nInstalling python3.11-venv …\n")
