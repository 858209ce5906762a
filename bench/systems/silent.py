"""Sites on machines of their own, which can be cut off without a word or made to stand still."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from anabranch.config.address import HostPort
from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.config.model import Security
from anabranch.config.presets import YOUNG_JVM
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.errors import TaskError
from anabranch.language.source import Script
from anabranch.link.gate import Credentials
from anabranch.scratch import scratch_folder
from bench.systems.cluster import Progress, Status, account
from bench.systems.namespaces import Machines

START_S = 120.0


class SilentCluster:
    """Sites of default settings, each on a machine of its own, and a coordinator here."""

    def __init__(
        self, progress: Progress, names: Sequence[str], queue_bytes: int = Cluster().queue_bytes
    ) -> None:
        self.folder = scratch_folder()
        self.machines = Machines(names)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        sites = {
            name: SiteConfig(
                name=name,
                isolation="process",
                master="local[1]",
                conf=YOUNG_JVM,
                listen=HostPort(self.machines.address_of(name), 0),
            )
            for name in names
        }
        here = HostPort(self.machines.address, 0)
        cluster = Cluster(
            sites=sites, listen=here, security=Security(plaintext=True), queue_bytes=queue_bytes
        )
        try:
            self.coordinator = Coordinator(self.folder, cluster, Credentials("bench"))
            for name in names:
                progress(f"Starting site {name} on a machine of its own …")
                self._start(name)
            self.wait_until_up()
        except BaseException:
            self.close()
            raise

    def _start(self, name: str) -> None:
        command = [*self.machines.within(name), sys.executable, "-m", "anabranch", "site", name]
        command += ["--coordinator", self.coordinator.address]
        command += ["--state", str(self.coordinator.site_state(name))]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"ANABRANCH_TOKEN": "bench"},
                start_new_session=True,
            )

    def wait_until_up(self) -> None:
        """All of them."""
        self.wait(lambda s: all(one.state == "up" for one in s.sites), "sites up")

    def execute(self, text: str) -> None:
        self.coordinator.execute(Script(text), str(self.folder))

    def wait(self, true: Callable[[Status], bool], what: str, timeout_s: float = START_S) -> Status:
        """Raises TaskError if it does not come true in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            status = self.coordinator.status(ask=False)
            if true(status):
                return status
            time.sleep(0.05)
        raise TaskError(f"{what}: not within {timeout_s:g} s", remedy=account(status))

    def signal(self, name: str, number: signal.Signals) -> None:
        """To all processes of a site."""
        os.killpg(self._processes[name].pid, number)

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if hasattr(self, "coordinator"):
            self.coordinator.close()
        self.machines.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> SilentCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
