"""Brings up the sites of a cluster: in this process, or as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from anabranch.config.address import read_address
from anabranch.config.cluster import SiteConfig
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.processes import SiteOutput, Spares, tell
from anabranch.errors import SiteError
from anabranch.link.gate import check_address
from anabranch.link.peer import Peer
from anabranch.process import birth, end
from anabranch.runtime.log import note
from anabranch.runtime.loop import supervised
from anabranch.site.member import StateFolder
from anabranch.site.site import Site
from anabranch.site.tasks.task import Task
from anabranch.spark.own import OwnSpark

Progress = Callable[[str], None]
START_S = 120.0
LEASE_S = 10.0
"""So long a process of an earlier life of the system is waited for, if it is there and silent."""
END_S = 15.0
STOP_S = 15.0
WATCH_S = 0.2
SPARE_LOG = "up.spares.log"
"""No site has a name with dots."""
CALM_S = 10.0
"""After a death, before spares are started: until then whoever comes back needs the machine."""


def may_be_up(coordinator: Coordinator) -> bool:
    """Whether a site of an earlier run may still be up. Nobody knows of those on other machines."""
    known = ((name, coordinator.sites.record(name)) for name in coordinator.sites.names())
    return any(
        record
        and (
            not read_address(record.address).loopback
            or birth(record.pid) == coordinator.members.started(name)
        )
        for name, record in known
    )


class LocalSites:
    """The sites that share this process and one Spark session, which stays its owner's."""

    def __init__(self, coordinator: Coordinator, names: Iterable[str], spark: SparkSession) -> None:
        self._sites: list[Site] = []
        try:
            for name in names:
                self._start(coordinator, name, spark)
        except BaseException:
            self.close()
            raise

    def _start(self, coordinator: Coordinator, name: str, spark: SparkSession) -> None:
        cluster, credentials = coordinator.cluster, coordinator.credentials
        path = coordinator.site_state(name)
        state = StateFolder.hold(path, name) if path else None
        site = Site(name, cluster, credentials, spark, state)
        self._sites.append(site)
        peer = Peer("the coordinator", coordinator.address, credentials)
        site.report_to(peer, cluster.report_interval_s)

    def tasks(self) -> list[Task]:
        """All tasks that are deployed at them."""
        return [task for site in self._sites for task in site.service.deployment.tasks.values()]

    def close(self, *names: str) -> None:
        """These, or all. They may be closed again."""
        closed = [site for site in self._sites if not names or site.name in names]
        for site in closed:  # all of them first: a gate waits for those who follow it
            site.stop()
        for site in closed:
            site.close()


class SiteProcesses:
    """Sites with a process and a Spark each. `tied` processes end when this process does, however
    it ends; the others go on without it.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        configs: list[SiteConfig],
        logs: Path,
        *,
        tied: bool,
        progress: Progress = lambda line: None,
    ) -> None:
        self._coordinator = coordinator
        self._progress = progress
        self._logs = logs
        self._tied = tied
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._outputs: list[SiteOutput] = []
        self._adopted: list[psutil.Process] = []
        self._dead: dict[str, float] = {}
        """Site → when its process was found dead; it has not been started again yet."""
        self.held: set[str] = set()
        """Those that are not started again for now."""
        self._lease_ends = time.monotonic() + LEASE_S
        for config in configs:
            if self._goes_on(config.name):
                self._adopt(config.name)
            else:
                self._processes[config.name] = self._spawn(config.name)
        watched = [one for one in configs if one.name in self._processes]
        count = 0 if tied else coordinator.cluster.spares
        self._spares = Spares(count, watched, self._start_spare)

    def _goes_on(self, name: str) -> bool:
        """Whether a site of an earlier coordinator goes on: it has reported. A silent site with a
        process has ended when this returns, at the latest when its lease ended: two processes of
        one site would write the same files. Raises SiteError if it cannot be ended.
        """
        sites = self._coordinator.sites
        if name in sites.alive():
            return True
        record, started = sites.record(name), self._coordinator.members.started(name)
        if not record or not started or birth(record.pid) != started:
            return False
        left = self._lease_ends - time.monotonic()
        self._progress(f"Waiting for site {name} (process {record.pid}), which does not answer …")
        if sites.wait_for(name, max(left, 0.0)):
            return True
        if not end(record.pid, started, END_S):
            raise SiteError(
                f"process {record.pid} of site {name} does not answer and does not end",
                remedy="End it, then start again.",
            )
        note("ended", f"site {name} was silent for {LEASE_S:g} s: its process is ended", site=name)
        return False

    def _adopt(self, name: str) -> None:
        """Takes over a site of an earlier coordinator: now we stop it."""
        record = self._coordinator.sites.record(name)
        with suppress(psutil.NoSuchProcess):
            if record:
                self._adopted.append(psutil.Process(record.pid))

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        self._coordinator.sites.starts(name)
        command = ["site", name, "--coordinator", self._coordinator.address]
        command += ["--state", str(self._coordinator.site_state(name))]
        for option, path in self._certificates().items():
            command += [f"--{option.replace('_', '-')}", path]
        return self._start(command, self._logs / f"{name}.log", subprocess.DEVNULL)

    def _revive(self, name: str) -> subprocess.Popen[bytes]:
        """Starts the site again, from a spare if there is one."""
        spare = self._spares.take(self._coordinator.cluster.sites[name])
        if spare is None:
            return self._spawn(name)
        self._coordinator.sites.starts(name)
        if tell(spare, self._order(name)):
            return spare
        spare.kill()
        spare.wait()
        return self._spawn(name)

    def _start_spare(self) -> subprocess.Popen[bytes]:
        return self._start(["spare"], self._logs / SPARE_LOG, subprocess.PIPE)

    def _order(self, name: str) -> dict[str, Any]:
        """The order to a spare: the site that it becomes."""
        return {
            "site": name,
            "coordinator": self._coordinator.address,
            "state": str(self._coordinator.site_state(name)),
            "log": str((self._logs / f"{name}.log").absolute()),
        } | self._certificates()

    def _certificates(self) -> dict[str, str]:
        security = self._coordinator.credentials
        named = {key: getattr(security, key) for key in ("tls_cert", "tls_key", "tls_ca")}
        return {key: path for key, path in named.items() if path}

    def _start(self, command: list[str], log_file: Path, orders: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "anabranch", *command]
        if self._tied:
            command += ["--parent", str(os.getpid())]
        environment = os.environ | {"ANABRANCH_TOKEN": self._coordinator.credentials.token}
        with log_file.open("ab") as log:
            # A session of its own: Ctrl-C at the terminal is ours to handle, in order.
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE if self._tied else log,
                stderr=log,
                stdin=orders,
                env=environment,
                start_new_session=True,
            )
        if self._tied:  # what console sinks print belongs on the terminal, which is ours
            self._outputs.append(SiteOutput(process))
        return process

    def wait(self, progress: Progress, logs: Path) -> None:
        """Waits until every site has registered. Raises SiteError with the last words of a dead
        one.
        """
        for name, process in self._processes.items():
            progress(f"Starting site {name} (process {process.pid}) …")
            deadline = time.monotonic() + START_S
            while not self._coordinator.sites.wait_for(name, 0.2):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise _did_not_start(name, process, logs)

    def watch(self, pause_s: float) -> None:
        """Starts sites again that die, in a thread of its own. They go on where they were."""
        self._watcher = supervised("site-watch", lambda: self._watch(pause_s), self._closing)
        self._watcher.start()

    def _watch(self, pause_s: float) -> None:
        dead = self._dead
        calm = time.monotonic() + CALM_S
        while not self._closing.wait(WATCH_S):
            now = time.monotonic()
            if now > calm:
                with suppress(OSError):  # it is tried again
                    self._spares.fill()
                calm = now + CALM_S
            for name, process in list(self._processes.items()):
                if (code := process.poll()) is None:
                    continue
                calm = now + CALM_S
                if name not in dead:
                    with suppress(ProcessLookupError):  # its JVM, should that have outlived it
                        os.killpg(process.pid, signal.SIGKILL)
                    self._coordinator.site_died(name, code)
                if now < dead.setdefault(name, now) + pause_s or name in self.held:
                    continue
                if not self._closing.is_set():
                    self._processes[name] = self._revive(name)
                    del dead[name]

    def close(self) -> None:
        self._closing.set()
        if self._watcher:
            self._watcher.join()  # else it might start another just now
        own = [*self._processes.values(), *self._spares.stop()]
        for process in self._processes.values():
            process.terminate()
        for adopted in self._adopted:
            with suppress(psutil.NoSuchProcess):
                adopted.terminate()
        running = [psutil.Process(p.pid) for p in own if p.poll() is None]
        _, stuck = psutil.wait_procs([*running, *self._adopted], timeout=STOP_S)
        for process in stuck:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for process in own:
            process.wait()
        for output in self._outputs:
            output.close()


def _did_not_start(name: str, process: subprocess.Popen[bytes], logs: Path) -> SiteError:
    lines = (logs / f"{name}.log").read_text(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"exit code {process.poll()}"
    return SiteError(f"site {name} did not start: {reason}", remedy=f"See {logs / name}.log.")


class RunningCluster:
    """A coordinator and all sites of a cluster that belong to this machine."""

    def __init__(
        self,
        coordinator: Coordinator,
        logs: Path,
        progress: Progress,
        *,
        tied: bool,
        revive: bool | None = None,
        revive_pause_s: float = 0.0,
        spark: SparkSession | None = None,
    ) -> None:
        """Sites that share this process share `spark`, which stays its owner's, or a session of
        ours. With `revive`, site processes that die are started again, after a pause; by default
        those that are not tied.
        """
        self.coordinator = coordinator
        self._spark: OwnSpark | None = None
        self._local: LocalSites | None = None
        self._processes: SiteProcesses | None = None
        configs = list(coordinator.cluster.sites.values())
        shared = [one for one in configs if one.shares_process]
        own = [one for one in configs if not one.shares_process and not one.remote]
        try:
            for name in shared:
                check_address(str(name.listen))  # before Spark, which takes its time
                coordinator.sites.starts(name.name)
            if own:
                self._processes = SiteProcesses(
                    coordinator, own, logs, tied=tied, progress=progress
                )
            if shared:
                if spark is None:
                    self._spark = OwnSpark(shared[0], "sites", progress=progress)
                    spark = self._spark.session
                self._local = LocalSites(coordinator, [one.name for one in shared], spark)
            if self._processes:
                self._processes.wait(progress, logs)
                if revive if revive is not None else not tied:
                    self._processes.watch(revive_pause_s)
        except BaseException:
            self.close()
            raise

    def tasks(self) -> list[Task]:
        """All that is deployed at the sites of this process."""
        return self._local.tasks() if self._local else []

    def close_local(self, *names: str) -> None:
        """Those of this process, or all of them: they answer nobody any more."""
        if self._local:
            self._local.close(*names)

    def hold(self, site: str) -> None:
        """Holds the site: if it dies, it is not started again until it is released."""
        if self._processes:
            self._processes.held.add(site)

    def let_go(self, site: str) -> None:
        if self._processes:
            self._processes.held.discard(site)

    def close(self) -> None:
        for part in (self._local, self._processes, self._spark):
            if part:
                part.close()
        self.coordinator.forget_sites()
        self.coordinator.close()
