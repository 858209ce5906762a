"""The coordinator is killed in the middle of a script: what runs afterwards is what the catalog
says, and a site that stood still neither keeps what was dropped nor gets a second process."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.requests import AskStatus, Execute
from anabranch.coordinator.service import launch
from anabranch.coordinator.service.state import find_coordinator
from anabranch.errors import AnabranchError
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until

CLUSTER = '[defaults]\nisolation = "process"\n[site.a]\n[site.b]\n'
QUERIES = 30
STATE = "anabranch-state"


class System:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lives = 0
        self.seen: list[psutil.Process] = []
        (folder / "cluster.toml").write_text(CLUSTER)
        self.begin()

    def begin(self) -> None:
        self._lives += 1
        self.log = self._folder / f"log{self._lives}"
        up = ["up", "--cluster", "cluster.toml", "--state", STATE, "--http", "off"]
        self.up: subprocess.Popen[bytes] = start(up, self._folder, self.log.name)
        wait_until(lambda: "sites: " in self.log.read_text(), "up", 200, self.log)
        self.seen += family(self.up.pid)

    def kill(self) -> None:
        self.seen += family(self.up.pid)
        self.up.kill()
        self.up.wait()

    def execute(self, text: str) -> Any:
        return find_coordinator(self._folder / STATE).send(
            Execute(text, "script.sql", str(self._folder)), 120
        )

    def status(self) -> SystemStatus:
        return find_coordinator(self._folder / STATE).send(AskStatus(), 30)

    def site(self, name: str) -> psutil.Process:
        pid = next(one.pid for one in self.status().sites if one.site == name)
        return psutil.Process(pid)

    def is_as_the_catalog_says(self) -> bool:
        status = self.status()
        sites = status.sites
        queries = set(status.states)
        running = {task.query for one in sites for task in one.tasks}
        return (
            all(one.state == "up" for one in sites)
            and not any(one.missing or one.ghosts for one in sites)
            and running == queries
        )


def script() -> str:
    """Each of its queries reads from the other site."""
    lines = ["CREATE STREAM ticks (value BIGINT) FROM rate(tps = 20) AT a;"]
    lines += [
        f"CREATE QUERY q{n} AS SELECT value FROM ticks WHERE value % {n + 2} = 0"
        f" INTO jsonl(path = 'q{n}.jsonl') AT {'ab'[n % 2]};"
        for n in range(QUERIES)
    ]
    return "\n".join(lines)


@pytest.mark.soak
@pytest.mark.slow
def test_a_coordinator_killed_in_a_script_leaves_what_the_catalog_says(tmp_path: Path) -> None:
    rng = random.Random(29)
    system = System(tmp_path)
    try:
        for _ in range(4):

            def create() -> None:
                with suppress(AnabranchError):
                    system.execute(script())

            thread = threading.Thread(target=create)
            thread.start()
            time.sleep(rng.uniform(0.2, 6.0))
            system.kill()
            thread.join()
            system.begin()
            wait_until(system.is_as_the_catalog_says, "quiet", 90, system.log)
            queries = list(system.status().states)
            assert len(queries) in (0, QUERIES)
            drops = [f"DROP QUERY {name};" for name in queries]
            if drops:
                system.execute("\n".join([*drops, "DROP STREAM ticks;"]))
        a_site_that_stands_still(system)
        assert anabranch("down", "--state", STATE, cwd=tmp_path).returncode == 0
    finally:
        for process in system.seen:
            if process.is_running():
                process.kill()
        system.up.wait()
    assert all_gone(system.seen) == []


def a_site_that_stands_still(system: System) -> None:
    system.execute(
        "CREATE STREAM ticks (value BIGINT) FROM rate(tps = 20) AT b;"
        "CREATE QUERY kept AS SELECT value FROM ticks INTO jsonl(path = 'kept.jsonl') AT b;"
        "CREATE QUERY gone AS SELECT value FROM ticks INTO jsonl(path = 'gone.jsonl') AT b;"
    )
    wait_until(system.is_as_the_catalog_says, "created")
    process = system.site("b")
    process.send_signal(signal.SIGSTOP)
    try:
        system.execute("DROP QUERY gone;")
    finally:
        process.send_signal(signal.SIGCONT)
    wait_until(system.is_as_the_catalog_says, "what was dropped is stopped", 60, system.log)
    assert set(system.status().states) == {"kept"}
    assert system.site("b").pid == process.pid

    process.send_signal(signal.SIGSTOP)
    system.kill()
    begun = time.monotonic()
    system.begin()
    assert time.monotonic() - begun >= launch.LEASE_S
    assert all_gone([process]) == []
    assert system.site("b").pid != process.pid
    wait_until(system.is_as_the_catalog_says, "goes on in another process", 60, system.log)
