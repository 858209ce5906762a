"""Folders and files that are nobody else's business."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def own_folder(path: Path) -> None:
    """`path` is a folder that its owner alone can enter, and so are those above it that had to be
    made. One that is ours and stood open is closed."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "this is a file", str(path))
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def readable_by_all(path: Path) -> bool:
    """Whether every user of this machine can read the file, as far as its own mode says."""
    return bool(path.stat().st_mode & stat.S_IROTH)
