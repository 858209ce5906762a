"""An archive of Spark's classes, parsed and verified, beside the installed packages.

A JVM that starts Spark loads some ten thousand classes, and spends half of its start on them. A JVM
that maps them from an archive (its class data sharing) does not. The JVM itself checks that the
archive fits the Java and the jars at hand, and does without it otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

WRITING = "-XX:ArchiveClassesAtExit="


def archive_path() -> Path:
    """The archive of this Python environment; it is removed together with the environment."""
    return Path(sys.prefix) / "share" / "anabranch" / f"spark-{pyspark.__version__}.jsa"


def using(archive: Path) -> str:
    """The Java option that uses it; empty if there is no archive."""
    return f"-XX:SharedArchiveFile={quoted(archive)}" if archive.is_file() else ""


def writing(archive: Path) -> str:
    """The Java option with which a JVM archives, when it ends, the classes it has loaded."""
    return f"{WRITING}{quoted(archive)}"


def quoted(path: Path) -> str:
    """The path quoted for Java options, which Spark splits at spaces."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
