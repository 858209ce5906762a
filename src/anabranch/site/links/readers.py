"""Programs that read a site's streams, written down so that they survive a killed process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anabranch.disk.folder import Folder
from anabranch.disk.records import read_records, record
from anabranch.link.outlet import LiveOutlet

Readers = dict[str, list[str]]
"""Stream → the consumers that hold a lease on it."""
READERS = "readers"


class ReadersFile:
    """After a restart, tuples are kept for them until they are back: nobody else knows of them."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder
        self._written: Readers = {}
        self.before: Readers = {}
        data = folder.read(READERS) if folder else None
        if folder and data:
            records = read_records(data, folder.place(READERS))
            self.before = json.loads(records.payloads[-1]) if records.payloads else {}

    def news(self, outlets: Mapping[str, LiveOutlet[Any]]) -> Readers | None:
        """The present readers; None if they are written already."""
        held = ((name, sorted(outlet.leased)) for name, outlet in list(outlets.items()))
        readers = {name: consumers for name, consumers in held if consumers}
        return None if self._folder is None or readers == self._written else readers

    def save(self, readers: Readers) -> None:
        if self._folder:
            self._folder.replace(READERS, record(json.dumps(readers).encode()))
            self._written = readers

    def await_back(self, stream: str, outlet: LiveOutlet[Any], position: int) -> None:
        """Keeps what lies after `position` for those who read the stream before."""
        for consumer in self.before.pop(stream, ()):
            outlet.attach(consumer, after=position, lease=True)
