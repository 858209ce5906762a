"""Machines with this and without that: a PATH with nothing on it but what a test puts there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@dataclass(frozen=True)
class Machine:
    """A user other than root, no sudo, no apt-get, no Java, until told otherwise."""

    root: Path

    @property
    def path(self) -> Path:
        return self.root / "bin"

    @property
    def jvm_root(self) -> Path:
        return self.root / "jvm"

    def command(self, name: str, script: str) -> Path:
        return write_script(self.path / name, script)

    def java(self, home: Path, version: str) -> Path:
        """A `java` below `home` that says it is of that version."""
        lines = f'    java.home = {home}\nopenjdk version "{version}" 2025-04-15'
        return write_script(home / "bin" / "java", f"cat >&2 <<'END'\n{lines}\nEND")

    def log(self) -> list[str]:
        file = self.root / "log"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        defaults = {"PATH": str(self.path), "JVM_ROOT": str(self.jvm_root)}
        bash = self.path / "bash"
        return subprocess.run(
            [bash, SCRIPTS / script, *arguments], env=defaults | env, capture_output=True, text=True
        )

    def can_install(self, package: str, effect: str) -> None:
        """apt-get knows one package, whose installation runs `effect`."""
        log = self.root / "log"
        self.command("apt-cache", f'[ "$2" = {package} ]')
        self.command(
            "apt-get",
            f'echo "$*" >> {log}\n[ "$2" = install ] || exit 0\nfor last; do :; done\n'
            f'[ "$last" = {package} ] || exit 1\n{effect}',
        )
        # The real one would write to the system.
        self.command("mkdir", f'echo "mkdir $*" >> {log}')

    def become_root(self) -> None:
        self.command("id", "echo 0")

    def allow_sudo(self) -> None:
        self.command("sudo", f'echo "sudo $1" >> {self.root / "log"}\nshift 2\nexec "$@"')


def write_script(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.path.mkdir()
    made.jvm_root.mkdir()
    for tool in ("bash", "cat", "dirname", "env", "sleep", "true"):
        os.symlink(shutil.which(tool) or tool, made.path / tool)
    made.command("id", "echo 1000")
    return made
