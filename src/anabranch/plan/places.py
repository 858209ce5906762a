"""The files that definitions read and write, and which of these must not be the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from anabranch.errors import AnabranchError
from anabranch.plan.spec import Spec

Extent = Literal["file", "children", "tree", "pattern"]


class Place(Spec):
    """`path` as the machine knows it once all links are followed, and what it stands for: that
    file, the files in that folder, all files below it, or those that fit the pattern. `inode`
    identifies a file that has several names.
    """

    machine: str
    path: str
    extent: Extent
    writes: bool
    inode: str = ""


@dataclass(frozen=True)
class Looked:
    """What a source or sink would read or write; what is wrong with that, unless a worse problem
    with others is found; and what the user should be told.
    """

    places: Sequence[Place]
    problem: AnabranchError | None = None
    note: str = ""


def clash(some: Iterable[Place], others: Iterable[Place]) -> tuple[Place, Place] | None:
    """The first places of `some` and of `others` that meet and of which one is written to."""
    known = list(others)
    for place in some:
        for other in known:
            if (place.writes or other.writes) and meet(place, other):
                return place, other
    return None


def meet(a: Place, b: Place) -> bool:
    """Whether both may stand for the same file. At least one of them is a file or a tree: nobody
    writes to a pattern.
    """
    if a.machine != b.machine:
        return False
    if a.inode and a.inode == b.inode:
        return True
    first, second = (a, b) if _ORDER[a.extent] <= _ORDER[b.extent] else (b, a)
    path, other = PurePosixPath(first.path), PurePosixPath(second.path)
    match first.extent, second.extent:
        case "file", "file":
            return path == other
        case "file", "children":
            return path.parent == other and path.name[:1] not in (".", "_")
        case "file", "pattern":
            return _fits(path.parts, other.parts, whole=True)
        case "tree", "tree":
            return other in (path, *path.parents) or path in other.parents
        case "pattern", "tree":
            return _fits(other.parts, path.parts, whole=False)
        case _, "tree":
            return other in (path, *path.parents)
    return False


_ORDER = {"file": 0, "children": 1, "pattern": 2, "tree": 3}


def _fits(parts: tuple[str, ...], pattern: tuple[str, ...], *, whole: bool) -> bool:
    """Whether a path of these parts fits `pattern`; or, if not `whole`, whether a path below it
    may.
    """
    if not pattern:
        return not parts and whole
    if not parts:
        return not whole
    if pattern[0] == "**":
        return _fits(parts, pattern[1:], whole=whole) or _fits(parts[1:], pattern, whole=whole)
    return fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:], whole=whole)
