"""Reads a file of JSON lines while it grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Tail:
    """Gives each line once, when its newline is there. The file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new(self) -> list[dict[str, Any]]:
        if not self._path.exists() or self._path.stat().st_size == self._read:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]
