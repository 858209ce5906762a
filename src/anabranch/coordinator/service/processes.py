"""The processes of sites on this machine: failures to try out go to those, and to nothing else."""

from __future__ import annotations

import signal
from itertools import pairwise

import psutil

from anabranch.config.address import read_address
from anabranch.coordinator.base.sites import unknown_site
from anabranch.coordinator.status.report import SystemStatus
from anabranch.errors import SiteError


def signal_process(name: str, number: signal.Signals, status: SystemStatus) -> int:
    """Send a signal to the process of a site; its number. Raises SiteError."""
    process = process_of(name, status)
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        raise _gone(name, process.pid) from None
    return int(process.pid)


def process_of(name: str, status: SystemStatus) -> psutil.Process:
    """The process of a site that has one of its own on this machine. Raises SiteError."""
    sites = {one.site: one for one in status.sites}
    if name not in sites:
        raise unknown_site(name, sites)
    address, pid = sites[name].address, sites[name].pid
    if address and not read_address(address).loopback:
        raise SiteError(
            f"site {name} is on another machine, at {address}", remedy="Signal its process there."
        )
    if pid == status.pid:
        raise SiteError(
            f"site {name} shares the coordinator's process",
            remedy=f'Give it isolation = "process" in cluster.toml, under [site.{name}].',
        )
    process = _process(pid)
    if process is None or not _is_site(process, name):
        raise _gone(name, pid)
    return process


def _gone(name: str, pid: int) -> SiteError:
    return SiteError(
        f"the process of site {name} ({pid}) is gone already",
        remedy="`up` starts it again; one started by hand is yours to start.",
    )


def _process(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except (psutil.NoSuchProcess, ValueError):
        return None


def _is_site(process: psutil.Process, name: str) -> bool:
    """Numbers of processes are given anew: this one must have been started as that site, or to
    become any."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    pairs = list(pairwise(words))
    if ("anabranch", "spare") in pairs:
        return True
    return any("anabranch" in word for word in words) and ("site", name) in pairs
