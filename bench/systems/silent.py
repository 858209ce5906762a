"""Sites on machines of their own, which can be cut off without a word or made to stand still."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

from anabranch.config.address import HostPort
from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.config.model import YOUNG_JVM, Security
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.link.gate import Credentials
from anabranch.scratch import scratch_folder
from bench.systems.namespaces import Machines
from bench.systems.system import Console, Progress, Status


class SilentCluster(Console):
    """Sites of default settings, each on a machine of its own, and a coordinator here."""

    def __init__(
        self,
        progress: Progress,
        names: Sequence[str],
        queue_bytes: int = ClusterConfig().queue_bytes,
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
        cluster = ClusterConfig(
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

    def status(self) -> Status:
        """As sites have reported: they are not asked, since some may not answer."""
        return self.coordinator.status(ask=False)

    def wait_until_up(self, timeout_s: float = 120.0) -> None:
        """All of them: one that has not joined yet is in no status."""
        names = set(self._processes)
        self.wait_for(
            lambda status: {one.site for one in status.sites if one.state == "up"} == names,
            "sites up",
            timeout_s,
        )

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
