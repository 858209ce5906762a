"""Finds the JDK that Spark runs on, where people and distributions put it.

`JAVA_HOME` comes first, then `java` on the PATH, then the oldest new enough one under
`/usr/lib/jvm`, which Spark has been tested on longest. A Java that does not run or is too old is
passed over, so a stale `JAVA_HOME` does no harm.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import SetupError

OLDEST = 17
JVM_ROOT = Path("/usr/lib/jvm")

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_PATIENCE_S = 30


@dataclass(frozen=True)
class _Java:
    version: int
    home: Path


def find_java(jvm_root: Path = JVM_ROOT) -> Path:
    """The home of a JDK 17 or newer: `bin/java` below it runs."""
    for java in _candidates(jvm_root):
        if java.version >= OLDEST:
            return java.home
    raise SetupError(
        f"no JDK {OLDEST} or newer found",
        remedy=f"Install one, e.g. `apt-get install openjdk-{OLDEST}-jre-headless`, "
        "or set JAVA_HOME.",
    )


def use_java() -> None:
    """Makes Spark, when this process starts it, run on the JDK of `find_java`."""
    os.environ["JAVA_HOME"] = str(find_java())


def _candidates(jvm_root: Path) -> Iterator[_Java]:
    """Every Java that runs, the preferred one first; looks no further than it is asked."""
    if home := os.environ.get("JAVA_HOME"):
        yield from _ask(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        yield from _ask(Path(on_path))
    installed = [java for path in sorted(jvm_root.glob("*/bin/java")) for java in _ask(path)]
    yield from sorted(installed, key=lambda java: java.version)


def _ask(java: Path) -> Iterator[_Java]:
    """The Java at `java`, as it describes itself; nothing if it does not run.

    It is asked for its home because the file on the PATH may be a version manager's shim, whose
    parent folders say nothing.
    """
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return
    version, home = _VERSION.search(answer.stderr), _HOME.search(answer.stderr)
    if version:
        yield _Java(int(version[1]), Path(home[1]) if home else java.resolve().parent.parent)


if __name__ == "__main__":
    try:
        print(find_java(*map(Path, sys.argv[1:])))
    except SetupError as error:
        sys.exit(str(error))
