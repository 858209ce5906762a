"""Which files a path means: on this machine, of which format, by the values of columns, and
whether what a sink finds there is the query's own.

A file or folder that a query writes bears the query's name, as an extended attribute; where the
file system has none, in a hidden file beside it. What bears another name, or none, is not replaced.
"""

from __future__ import annotations

import functools
import glob
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.connectors.options import BOOLEAN, TEXT, Option, unknown
from anabranch.errors import ConfigError, SourceError
from anabranch.plan.places import Extent, Place

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
    full = Path(os.path.abspath(base / Path(path).expanduser()))
    if any(len(part.encode("utf-8", "replace")) > _LONGEST_NAME for part in full.parts):
        remedy = f"Systems take {_LONGEST_NAME} bytes at most."
        raise ConfigError(f"the name of a file is too long: '{path[:40]}…'", remedy=remedy)
    return full


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
        files = [Path(name) for name in glob.glob(str(target), recursive=True)]
        return _some(_visible(files), target, "no file matches")
    raise SourceError("no such file", place=str(target), remedy=_remedy(path, base))


def _kind(path: Path) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "a device")


def guess_format(files: Sequence[Path]) -> str:
    """The single format that all suffixes stand for."""
    formats = {_format_of(file) for file in files}
    if len(formats) > 1:
        raise ConfigError(
            f"file() cannot read {' and '.join(sorted(formats))} files as one stream",
            remedy="Choose with a pattern such as path = 'logs/*.csv'.",
        )
    return formats.pop()


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


OVERWRITE = Option(
    "overwrite", BOOLEAN, "whether files that this query has not written are replaced", False
)
_ATTRIBUTE = "user.anabranch.query"


def claim(path: Path, query: str) -> None:
    """Marks `path`, which exists, as the query's."""
    try:
        os.setxattr(path, _ATTRIBUTE, query.encode())
    except (OSError, AttributeError):
        with suppress(OSError):
            _beside(path).write_text(query, encoding="utf-8")


def is_own(path: Path, query: str) -> bool:
    try:
        return os.getxattr(path, _ATTRIBUTE) == query.encode()
    except (OSError, AttributeError):
        with suppress(OSError, UnicodeDecodeError):
            return _beside(path).read_text(encoding="utf-8") == query
    return False


def check_own(sink: str, path: Path, query: str, *, overwrite: bool) -> None:
    """Raises ConfigError unless what is at `path` is the query's own or may be replaced."""
    if not overwrite and not is_own(path, query):
        raise ConfigError(
            f"{sink}() has path = {str(path)!r}, where something is that"
            f" {f'query {query}' if query else 'this query'} has not written",
            remedy="Choose another path, or add overwrite = true to replace what is there.",
        )


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.anabranch")


PARTITION_BY = Option(
    "partition_by",
    TEXT,
    "a column, or several with commas: path is a folder then, with one below it for each value",
)
_NONE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {ord(character): f"%{ord(character):02X}" for character in "\"#%'*/:=?\\{[]^\x7f"} | {
    code: f"%{code:02X}" for code in range(32)
}


class Partitions:
    """Splits tables by partition. `schema` is the tables' own, `_pos` and `_ts` last."""

    def __init__(self, sink: str, given: str | None, schema: pa.Schema) -> None:
        """Raises ConfigError if a column does not exist, or its type cannot name a folder."""
        names = [name.strip() for name in given.split(",")] if given else []
        own = {name.lower(): name for name in schema.names[:-2]}
        self.columns: list[str] = []
        for name in names:
            if name.lower() not in own:
                raise unknown(
                    f"{sink}() has partition_by = {name!r}, no column", name, own.values()
                )
            column = own[name.lower()]
            type_ = schema.field(column).type
            if pt.is_nested(type_) or pt.is_binary(type_):
                raise ConfigError(
                    f"{sink}() has partition_by = {name!r}, of a type that makes no folder's name",
                    remedy="Name a column of numbers, text or dates.",
                )
            self.columns.append(column)
        if len(set(self.columns)) == len(own) or len(set(self.columns)) < len(self.columns):
            raise ConfigError(
                f"{sink}() has partition_by = {given!r}",
                remedy="Name each column once, and leave one at least for the files.",
            )
        self.schema = pa.schema([field for field in schema if field.name not in self.columns])
        """What is left for the files."""

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The folders of the rows with their rows, which keep their order."""
        if not self.columns:
            yield "", table
            return
        names = [_names(column, table.column(column)) for column in self.columns]
        folders = pc.binary_join_element_wise(*names, "/").combine_chunks().dictionary_encode()
        codes = folders.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order])) + 1
        rest = table.select(self.schema.names)
        for rows in np.split(order, ends):
            folder = folders.dictionary[codes[rows[0]]].as_py()
            yield folder, rest.take(pa.array(rows))

    @property
    def pattern(self) -> str:
        """A pattern that all these folders fit."""
        return "/".join(f"{_escaped(column)}=*" for column in self.columns)


def _names(column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The name of each value's folder."""
    known = values.unique()
    texts = known.cast(pa.string()).to_pylist()
    names = [f"{_escaped(column)}={_escaped(text) if text else _NONE}" for text in texts]
    for name in names:
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"{name[:60]}… is too long for the name of a folder")
    folders: Any = pa.array(names, pa.string())
    return pa.chunked_array([folders.take(pc.index_in(values.combine_chunks(), known))])


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)


@functools.cache
def machine() -> str:
    """Names the space in which paths mean the same: this boot of a machine, seen from within one
    container.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/mnt')}"
    except OSError:
        return socket.gethostname()


def written(path: Path, *, folder: bool = False) -> list[Place]:
    """The place that a sink writes to."""
    return [_place(path, "tree" if folder else "file", writes=True)]


def below(path: Path) -> list[Place]:
    """The place of all files below a folder, or of a file."""
    return [_place(path, "tree", writes=False)]


def read(path: Path) -> list[Place]:
    """The places that the source `file` reads for a path: see `files.paths.find_files`."""
    if path.is_dir():
        inside = [entry for entry in path.iterdir() if entry.is_symlink()]
        return [_place(path, "children", writes=False), *map(_file, inside)]
    if path.exists() or not glob.has_magic(str(path)):
        return [_file(path)]
    fixed = next(folder for folder in path.parents if not glob.has_magic(str(folder)))
    pattern = _real(fixed) / path.relative_to(fixed)
    place = Place(machine=machine(), path=str(pattern), extent="pattern", writes=False)
    return [place, *(_file(Path(found)) for found in glob.glob(str(path), recursive=True))]


def _file(path: Path) -> Place:
    return _place(path, "file", writes=False)


def _place(path: Path, extent: Extent, *, writes: bool) -> Place:
    return Place(
        machine=machine(), path=str(_real(path)), extent=extent, writes=writes, inode=_inode(path)
    )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _inode(path: Path) -> str:
    """The inode of a file that has several names; empty for other files."""
    try:
        stat = path.stat()
    except OSError:
        return ""
    several = path.is_file() and stat.st_nlink > 1
    return f"{stat.st_dev}:{stat.st_ino}" if several else ""
