"""Programs that read a site's streams, remembered where a killed process leaves them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from anabranch.link.outlet import LiveOutlet

Readers = dict[str, list[str]]
"""Stream → the consumers that hold a lease on it."""


class ReadersFile:
    """After a restart they are kept tuples for until they are back: nobody else knows of them."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written: Readers = {}
        self.before: Readers = {}
        if path and path.exists():
            self.before = json.loads(path.read_text())

    def news(self, outlets: Mapping[str, LiveOutlet]) -> Readers | None:
        """Those there are now, unless that is written already."""
        held = ((name, sorted(outlet.leased)) for name, outlet in list(outlets.items()))
        readers = {name: consumers for name, consumers in held if consumers}
        return None if self._path is None or readers == self._written else readers

    def save(self, readers: Readers) -> None:
        if self._path:
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps(readers))
            os.replace(temporary, self._path)
            self._written = readers

    def await_back(self, stream: str, outlet: LiveOutlet, position: int) -> None:
        """Keep what lies behind `position` for those who read the stream before."""
        for consumer in self.before.pop(stream, ()):
            outlet.attach(consumer, after=position, lease=True)
