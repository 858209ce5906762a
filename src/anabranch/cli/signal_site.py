"""`anabranch kill`, `pause`, `resume`: failures to try out, on sites of this machine."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from anabranch.cli.show import err
from anabranch.config.address import read_address
from anabranch.coordinator.sites import unknown_site
from anabranch.coordinator.state import find_coordinator
from anabranch.errors import SiteError

NEXT = {
    signal.SIGKILL: "killed; `anabranch status` shows who took over, and `up` starts it again",
    signal.SIGSTOP: "paused; `anabranch status` shows who took over, `anabranch resume {site}` lets"
    " it go on",
    signal.SIGCONT: "goes on; what was taken over meanwhile stays where it is",
}
"""What to say once the signal is sent."""


def signal_site(name: str, number: signal.Signals, state: Path) -> None:
    """Send a signal to the process of a site, and to nothing else."""
    status = find_coordinator(state).call("status")
    process = process_of(name, status)
    process.send_signal(number)
    err.print(f"site {name} (process {process.pid}) {NEXT[number].format(site=name)}")


def process_of(name: str, status: dict[str, Any]) -> psutil.Process:
    """The process of a site that has one of its own on this machine. Raises SiteError."""
    sites = {one["site"]: one for one in status["sites"]}
    if name not in sites:
        raise unknown_site(name, sites)
    address, pid = sites[name]["address"], sites[name]["pid"]
    if not read_address(address).loopback:
        raise SiteError(
            f"site {name} is on another machine, at {address}", remedy="Signal its process there."
        )
    if pid == status["pid"]:
        raise SiteError(
            f"site {name} shares the coordinator's process",
            remedy=f'Give it isolation = "process" in cluster.toml, under [site.{name}].',
        )
    process = _process(pid)
    if process is None or not _is_site(process, name):
        raise SiteError(
            f"the process of site {name} ({pid}) is gone already",
            remedy="`up` starts it again; one started by hand is yours to start.",
        )
    return process


def _process(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (psutil.NoSuchProcess, ValueError):
        return None


def _is_site(process: psutil.Process, name: str) -> bool:
    """Numbers of processes are given anew: this one must have been started as that site."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    pairs = pairwise(words)
    return any("anabranch" in word for word in words) and ("site", name) in pairs
