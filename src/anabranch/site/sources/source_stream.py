"""What a site's streams from outside have in common."""

from __future__ import annotations

from typing import Any, Protocol

from anabranch.errors import AnabranchError
from anabranch.link.outlet import LiveOutlet
from anabranch.link.reports import SourceReport


class SourceStream(Protocol):
    """A source's stream, a table's changes, or a stream that a pocket or program fills."""

    outlet: LiveOutlet[Any]
    error: AnabranchError | None

    def resume(self, position: int) -> None:
        """Before the start: go on behind `position`. Raises SourceError if that cannot be."""

    def start(self) -> None: ...

    def close(self) -> None: ...

    def report(self) -> SourceReport: ...
