"""What looking costs: a dashboard of a large system that is only reported, and one viewer."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil

from anabranch.config.address import HostPort
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.errors import SetupError
from anabranch.face.server import FaceServer
from anabranch.face.system import System
from bench.face.simulated import SimulatedCoordinator

Progress = Callable[[str], None]
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SETTLE_S = 3.0


@contextmanager
def simulated(sites: int, operators: int) -> Iterator[FaceServer]:
    """A dashboard of so many sites and operators, on this machine alone."""
    coordinator = SimulatedCoordinator(sites, operators, time.time)
    # All that the face asks of a coordinator is there; nothing else is asked.
    system = System(cast("Coordinator", coordinator), Path.cwd())
    server = FaceServer(system, coordinator.credentials, HostPort("127.0.0.1", 0))
    try:
        yield server
    finally:
        server.close()


def measure(progress: Progress, sites: int, operators: int, seconds: float) -> dict[str, Any]:
    """CPU seconds a second of our process, without and with a viewer of each view, and how long the
    first view took from the moment that the server was up."""
    with simulated(sites, operators) as server:
        begun = time.monotonic()
        progress("Opening a browser …")
        with _browser() as page:
            opened = time.monotonic()
            page.goto(server.invitation())
            page.get_by_text(f"{sites} of {sites} sites up").wait_for(timeout=60_000)
            page.locator("canvas").first.wait_for(timeout=60_000)
            first_s = time.monotonic() - opened
            rows = [
                _view(progress, page, server, name, path, seconds)
                for name, path in (
                    ("System", ""),
                    ("Query", "query/q00c"),
                    ("Timeline", "timeline"),
                )
            ]
            page.goto("about:blank")
        time.sleep(SETTLE_S)
        progress("Nobody looks …")
        idle = _cpu_share(psutil.Process(), seconds)
    return {
        "sites": sites,
        "operators": operators,
        "first_view_s": round(first_s, 3),
        "browser_start_s": round(opened - begun, 3),
        "nobody": round(idle, 4),
        "rows": rows,
    }


def _view(
    progress: Progress, page: Any, server: FaceServer, name: str, path: str, seconds: float
) -> dict[str, Any]:
    progress(f"One viewer of {name} …")
    page.goto(server.url + path)
    time.sleep(SETTLE_S)
    browser = [one for one in psutil.process_iter() if _is_browser(one)]
    before = sum(_cpu(one) for one in browser)
    begun = time.monotonic()
    server_share = _cpu_share(psutil.Process(), seconds)
    browser_share = (sum(_cpu(one) for one in browser) - before) / (time.monotonic() - begun)
    return {"view": name, "server": round(server_share, 4), "browser": round(browser_share, 4)}


def _cpu_share(process: psutil.Process, seconds: float) -> float:
    before, begun = _cpu(process), time.monotonic()
    time.sleep(seconds)
    return (_cpu(process) - before) / (time.monotonic() - begun)


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _is_browser(process: psutil.Process) -> bool:
    """One that descends from us: nobody else's."""
    try:
        return "chrom" in process.name() and psutil.Process() in process.parents()
    except psutil.NoSuchProcess:
        return False


@contextmanager
def _browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        raise SetupError(
            "there is no browser to look with",
            remedy="apt-get install chromium; pip install playwright",
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser.new_page(viewport={"width": 1280, "height": 900})
        finally:
            browser.close()
