"""What is asked of a system that runs: its status, its report, its dashboard, its end, and
failures of its sites to try out.

They import little, since a person waits for each of them.
"""

from __future__ import annotations

import json
import signal
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from rich.live import Live

from anabranch.cli.show.tables import err, out, system_tables
from anabranch.coordinator.requests import AskStatus, Stop
from anabranch.coordinator.service.processes import signal_process
from anabranch.coordinator.service.state import find_coordinator, http_in
from anabranch.errors import ConfigError, SiteError
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


ASK_S = 60.0


def report(out: Path, state: Path) -> None:
    """Writes the last ten minutes as one file."""
    _, page = _asked(state, "GET", "api/report")
    try:
        out.write_bytes(page)
    except OSError as error:
        raise ConfigError(f"cannot write: {error.strerror}", place=str(out)) from None
    err.print(f"{out}: {len(page) // 1000:,} KB; open it in a browser")


def dashboard(state: Path) -> None:
    url, answer = _asked(state, "POST", "api/invitations")
    print(f"{url}?invitation={json.loads(answer)['invitation']}")


def _asked(state: Path, method: str, path: str) -> tuple[str, bytes]:
    """The address that was asked, and its answer."""
    url, credentials = http_in(state)
    request = urllib.request.Request(f"{url}{path}", method=method)
    request.add_header("Authorization", f"Bearer {credentials.token}")
    trusted = ssl.create_default_context(cafile=credentials.tls_ca) if credentials.tls_ca else None
    try:
        with urllib.request.urlopen(request, timeout=ASK_S, context=trusted) as answer:
            return url, bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        remedy = "Is it still up? `anabranch status` tells."
        raise SiteError(f"{url} does not answer: {error}", remedy=remedy) from None
