"""`anabranch move`: a query goes on at another site."""

from __future__ import annotations

import time
from pathlib import Path

from anabranch.cli.show.tables import err, working
from anabranch.coordinator.requests import MoveQuery
from anabranch.coordinator.service.state import find_coordinator

MOVE_S = 240.0


def move(query: str, site: str, state: Path) -> None:
    coordinator = find_coordinator(state)
    begun = time.monotonic()
    with working(f"Moving {query} to {site} …"):
        was_at = coordinator.send(MoveQuery(query, site), MOVE_S)
    took = time.monotonic() - begun
    err.print(f"query {query} moved from {was_at} to {site} in {took:.1f} s")
