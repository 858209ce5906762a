"""`anabranch kill`, `pause`, `resume`: cause failures on sites of this machine, to try them out."""

from __future__ import annotations

import signal
from pathlib import Path

from anabranch.cli.show.tables import err
from anabranch.coordinator.requests import AskStatus
from anabranch.coordinator.service.processes import signal_process
from anabranch.coordinator.service.state import find_coordinator

NEXT = {
    signal.SIGKILL: "killed; `anabranch status` shows who took over, and `up` starts it again",
    signal.SIGSTOP: "paused; `anabranch status` shows who took over, `anabranch resume {site}` lets"
    " it go on",
    signal.SIGCONT: "goes on; what was taken over meanwhile stays where it is",
}
"""What to say once the signal is sent."""


def signal_site(name: str, number: signal.Signals, state: Path) -> None:
    """Sends a signal to the process of a site, and to no other process."""
    pid = signal_process(name, number, find_coordinator(state).send(AskStatus()))
    err.print(f"site {name} (process {pid}) {NEXT[number].format(site=name)}")
