"""Whether the file or folder at a sink's path is the query's own, from an earlier run.

A file or folder that a query writes bears the query's name, as an extended attribute; where the
file system has none, in a hidden file beside it. What bears another name, or none, is not replaced.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from anabranch.connectors.options import BOOLEAN, Option
from anabranch.errors import ConfigError

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
