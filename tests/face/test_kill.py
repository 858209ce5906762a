"""Who is killed through the API: the process of that site on this machine, and nobody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from starlette.testclient import TestClient

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.face.routes import make_app
from anabranch.face.system import System
from bench.face.simulated import SimulatedCoordinator
from tests.e2e.commands import wait_until

SLEEP = "import time; time.sleep(600)"


class Reported(SimulatedCoordinator):
    """One site, as its report says."""

    def __init__(self, **report: Any) -> None:
        super().__init__(1, 4, lambda: 1.0)
        self._report = report

    def status(self, *, ask: bool = False) -> SystemStatus:
        told = super().status()
        site = replace(told.sites[0], **{"address": "127.0.0.1:7101"} | self._report)
        return replace(told, sites=(site,))


@pytest.fixture
def process() -> Iterator[psutil.Process]:
    """As the process of the site `site01` would look, and not of any other."""
    words = [sys.executable, "-c", SLEEP, "anabranch", "site", "site01"]
    started = subprocess.Popen(words)
    try:
        yield psutil.Process(started.pid)
    finally:
        started.kill()
        started.wait()


def kill(tmp_path: Path, **report: Any) -> tuple[int, dict[str, Any]]:
    system = System(cast("Coordinator", Reported(**report)), tmp_path)
    client = TestClient(make_app(system), raise_server_exceptions=False)
    try:
        answer = client.post("/api/sites/site01/kill")
        told = [one.kind for one in system.watch.events]
        assert told == (["kill"] if answer.status_code == 200 else [])
        return answer.status_code, answer.json()
    finally:
        system.close()


def test_its_process_is_killed(process: psutil.Process, tmp_path: Path) -> None:
    assert kill(tmp_path, pid=process.pid) == (200, {"killed": process.pid})
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, "killed", 30)
    code, answer = kill(tmp_path, pid=process.pid)
    assert (code, answer["message"]) == (
        400,
        f"the process of site site01 ({process.pid}) is gone already",
    )


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ({"address": "10.0.0.5:7101"}, "site site01 is on another machine, at 10.0.0.5:7101"),
        ({"site": "site02"}, "unknown site 'site01'"),
        ({"pid": 1}, "site site01 shares the coordinator's process"),
    ],
)
def test_a_process_of_that_number_here_is_somebody_else(
    process: psutil.Process, tmp_path: Path, report: dict[str, Any], message: str
) -> None:
    code, answer = kill(tmp_path, **{"pid": process.pid} | report)
    assert (code, answer["message"]) == (400, message)
    assert process.status() != psutil.STATUS_ZOMBIE


def test_a_number_that_was_given_anew_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as other:
        code, answer = kill(tmp_path, pid=other.pid)
        try:
            assert (code, other.poll()) == (400, None)
            assert "is gone already" in answer["message"]
        finally:
            other.kill()
