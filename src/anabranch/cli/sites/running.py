"""`anabranch status`, `down`: questions to a running system.

They import little, since a person waits for each of them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.live import Live

from anabranch.cli.show.tables import err, out, system_tables
from anabranch.coordinator.requests import AskStatus, Stop
from anabranch.coordinator.service.state import find_coordinator
from anabranch.link.message import plain

STOP_S = 30.0


def down(state: Path) -> None:
    coordinator = find_coordinator(state)
    coordinator.send(Stop())
    deadline = time.monotonic() + STOP_S
    while (state / "coordinator.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    err.print("stopped")


def show_status(state: Path, *, as_json: bool, watch: bool) -> None:
    coordinator = find_coordinator(state)
    status = coordinator.send(AskStatus())
    if as_json:
        print(json.dumps(plain(status), indent=2))
        return
    if not watch:
        out.print(system_tables(status))
        return
    with Live(console=out, auto_refresh=False) as live:
        while True:
            status = coordinator.send(AskStatus())
            live.update(system_tables(status), refresh=True)
            time.sleep(1.0)
