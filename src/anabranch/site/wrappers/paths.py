"""Which files a path means, and of what format they are."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from anabranch.errors import ConfigError, SourceError

FORMATS = {
    "csv": (".csv",),
    "json": (".jsonl", ".json", ".ndjson"),
    "parquet": (".parquet",),
}


def absolute(path: str, base: Path) -> Path:
    """`path` from `base` on, with `~` as the home folder."""
    return Path(os.path.abspath(base / Path(path).expanduser()))


def find_files(path: str, base: Path) -> list[Path]:
    """The file at `path`, the visible files in the folder there, or those a pattern such as
    `logs/*.csv` matches, in name order; never empty."""
    target = absolute(path, base)
    if target.is_dir():
        return _some(_visible(target.iterdir()), target, "the folder holds no files")
    if target.exists():
        return [target]
    if glob.has_magic(path):
        found = [Path(name) for name in glob.glob(str(target), recursive=True)]
        return _some(_visible(found), target, "no file matches")
    raise SourceError("no such file", place=str(target), remedy=_remedy(path, base))


def guess_format(files: Sequence[Path]) -> str:
    """The one format that all suffixes stand for."""
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
    """Spark and our own sinks write what is unfinished under names with a dot or underscore."""
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
