"""Spark's classes, parsed and verified, in a file beside the installed packages.

A JVM that starts Spark loads some ten thousand classes, and spends half the time on them. One that
maps them from an archive (the JVM's class data sharing) does not. The JVM itself checks that the
archive fits the Java and the jars at hand, and does without it otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

WRITING = "-XX:ArchiveClassesAtExit="


def archive_path() -> Path:
    """Of this Python environment, with which it goes."""
    return Path(sys.prefix) / "share" / "anabranch" / f"spark-{pyspark.__version__}.jsa"


def using(archive: Path) -> str:
    """The Java option; empty without an archive."""
    return f"-XX:SharedArchiveFile={quoted(archive)}" if archive.is_file() else ""


def writing(archive: Path) -> str:
    """The Java option with which a JVM archives, when it ends, the classes it has loaded."""
    return f"{WRITING}{quoted(archive)}"


def quoted(path: Path) -> str:
    """Among Java options, which Spark takes apart at spaces."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
