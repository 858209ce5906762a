"""Which files a path means, and of what format they are."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from anabranch.errors import ConfigError, SourceError

FORMATS = {
    "csv": (".csv",),
    "json": (".jsonl", ".json", ".ndjson"),
    "parquet": (".parquet",),
}
_LONGEST_NAME = 255
"""Bytes of one part of a path that file systems take."""


def absolute(path: str, base: Path) -> Path:
    """`path` from `base` on, with `~` as the home folder. Raises ConfigError if no file can have
    this name.
    """
    found = Path(os.path.abspath(base / Path(path).expanduser()))
    if any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in found.parts):
        remedy = f"Systems take {_LONGEST_NAME} bytes at most."
        raise ConfigError(f"the name of a file is too long: '{path[:40]}…'", remedy=remedy)
    return found


def find_files(path: str, base: Path) -> list[Path]:
    """The file at `path`, the visible files in the folder there, or those a pattern such as
    `logs/*.csv` matches, in name order; never empty."""
    target = absolute(path, base)
    if target.is_dir():
        return _some(_visible(target.iterdir()), target, "the folder holds no files")
    if target.is_file():
        return [target]
    if target.exists():
        raise SourceError(
            f"this is {_kind(target)}, which cannot be read again after a failure",
            place=str(target),
            remedy="Name a file, or read it with a function: FROM python(function = …).",
        )
    if glob.has_magic(path):
        found = [Path(name) for name in glob.glob(str(target), recursive=True)]
        return _some(_visible(found), target, "no file matches")
    raise SourceError("no such file", place=str(target), remedy=_remedy(path, base))


def _kind(path: Path) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "a device")


def guess_format(files: Sequence[Path]) -> str:
    """The single format that all suffixes stand for."""
    found = {_format_of(file) for file in files}
    if len(found) > 1:
        raise ConfigError(
            f"file() cannot read {' and '.join(sorted(found))} files as one stream",
            remedy="Choose with a pattern such as path = 'logs/*.csv'.",
        )
    return found.pop()


def _format_of(file: Path) -> str:
    for name, suffixes in FORMATS.items():
        if file.suffix.lower() in suffixes:
            return name
    raise ConfigError(
        f"file() cannot tell the format of {file.name}",
        remedy="Add format = 'csv', 'json' or 'parquet'.",
    )


def _visible(paths: Iterable[Path]) -> list[Path]:
    """The paths without those that begin with a dot or underscore: Spark and our own sinks write
    unfinished files under such names.
    """
    files = [path for path in paths if path.is_file()]
    return sorted(file for file in files if file.name[0] not in "._")


def _some(files: list[Path], target: Path, complaint: str) -> list[Path]:
    if not files:
        raise SourceError(complaint, place=str(target), remedy="Check the path.")
    return files


def _remedy(path: str, base: Path) -> str:
    if Path(path).expanduser().is_absolute():
        return "Check the path."
    return f"Relative paths start at {os.path.abspath(base)}."
