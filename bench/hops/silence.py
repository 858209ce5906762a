"""A primary's machine vanishes without a word: how long is there no output, and is all of it right?

Three sites on machines of their own (`bench.systems.namespaces`): the source and its sink, the
primary, and its standby. While tuples flow the primary is cut off: in both directions, in one of
them, or by a link that comes and goes. Then the cut heals, and the whole output is compared.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from anabranch.config.address import HostPort
from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.config.model import Security
from anabranch.config.presets import YOUNG_JVM
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.errors import TaskError
from anabranch.language.source import Script
from anabranch.link.gate import Credentials
from anabranch.scratch import scratch_folder
from bench.systems.cluster import Keep, Progress, Status, account, task_states
from bench.systems.namespaces import Machines

TPS, SECONDS = 200, 16
ROWS = TPS * SECONDS
CUT_AT_S, CUT_S = 3.0, 6.0
FLAP_S = (0.9, 0.6)
"""A link that comes and goes is away for so long, and there for so long."""
SITES = ("source", "one", "two")
CASES = ("both ways", "what it sends", "what it is sent", "flapping")
SCRIPT = f"""
CREATE STREAM r (n BIGINT) FROM rate(tps = {TPS}, rows = {ROWS}, n = 'value') AT source;
CREATE QUERY q AS SELECT n, n * 2 AS m FROM r WHERE n % 3 <> 0 AT one
  STANDBY ON two RECOVERY {{recovery}} INTO jsonl(path = 'out.jsonl') ON source;
"""
PROMISED_S = {case: 3.0 if case == "flapping" else 2.2 for case in CASES}
START_S, END_S = 120.0, 90.0


class SilentCluster:
    """Sites of default settings, each on a machine of its own, and a coordinator here."""

    def __init__(
        self,
        progress: Progress,
        names: Sequence[str] = SITES,
        queue_bytes: int = Cluster().queue_bytes,
    ) -> None:
        self.folder = scratch_folder()
        self.machines = Machines(names)
        self._processes: list[subprocess.Popen[bytes]] = []
        sites = {
            name: SiteConfig(name=name, isolation="process", master="local[1]", conf=YOUNG_JVM,
                             listen=HostPort(self.machines.address_of(name), 0))
            for name in names
        }  # fmt: skip
        here = HostPort(self.machines.address, 0)
        cluster = Cluster(
            sites=sites, listen=here, security=Security(plaintext=True), queue_bytes=queue_bytes
        )
        try:
            self.coordinator = Coordinator(self.folder, cluster, Credentials("bench"))
            for name in names:
                progress(f"Starting site {name} on a machine of its own …")
                self._start(name)
            self.wait(lambda s: [one.state for one in s.sites] == ["up"] * len(names), "sites up")
        except BaseException:
            self.close()
            raise

    def _start(self, name: str) -> None:
        command = [*self.machines.within(name), sys.executable, "-m", "anabranch", "site", name]
        command += ["--coordinator", self.coordinator.address]
        command += ["--state", str(self.coordinator.site_state(name))]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                 env=os.environ | {"ANABRANCH_TOKEN": "bench"})
            )  # fmt: skip

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

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if hasattr(self, "coordinator"):
            self.coordinator.close()
        self.machines.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> SilentCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def run(
    progress: Progress, keep: Keep, recovery: str = "2s", cases: tuple[str, ...] = CASES
) -> dict[str, Any]:
    """A row of each case: the longest time without output, what status had promised, and what is
    wrong with the output."""
    rows = []
    with SilentCluster(progress) as cluster:
        for number, case in enumerate(cases, 1):
            progress(f"Run {number} of {len(cases)}: {case} …")
            rows.append(one_run(cluster, case, recovery))
            keep(rows[-1])
    return {"rows": rows}


def one_run(cluster: SilentCluster, case: str, recovery: str) -> dict[str, Any]:
    output = cluster.folder / "out.jsonl"
    output.unlink(missing_ok=True)
    cluster.execute(SCRIPT.format(recovery=recovery))
    grown: list[tuple[float, int]] = []
    with _watched(output, grown):
        status = cluster.wait(
            lambda s: any(one.protected for one in s.protection.values()), "protection"
        )
        begun = time.monotonic()
        while output.stat().st_size == 0 if output.exists() else True:
            time.sleep(0.02)
        time.sleep(max(0.0, CUT_AT_S - (time.monotonic() - begun)))
        before = time.monotonic()
        with _cut(cluster.machines, "one", case):
            time.sleep(CUT_S)
        cluster.wait(lambda s: task_states(s, "q/sink") == ["done"], f"the end, {case}", END_S)
    gap_s = max((b - a for (a, _), (b, _) in pairwise(grown) if b > before), default=0.0)
    taken = cluster.coordinator.status(ask=False).protection["q"].site == "two"
    cluster.execute("DROP QUERY q; DROP STREAM r;")
    return {"case": case, "recovery": recovery, "gap_s": round(gap_s, 3), "took_over": taken,
            "promised_s": _promised(status), **faults(output)}  # fmt: skip


@contextmanager
def _cut(machines: Machines, name: str, case: str) -> Iterator[None]:
    over = threading.Event()

    def flap() -> None:
        while not over.is_set():
            machines.cut(name)
            over.wait(FLAP_S[0])
            machines.heal(name)
            over.wait(FLAP_S[1])

    flapping = threading.Thread(target=flap)
    match case:
        case "flapping":
            flapping.start()
        case "both ways":
            machines.cut(name)
        case "what it sends":
            machines.mute(name)
        case _:
            machines.deafen(name)
    try:
        yield
    finally:
        over.set()
        if flapping.is_alive():
            flapping.join()
        machines.heal(name)


@contextmanager
def _watched(output: Path, grown: list[tuple[float, int]]) -> Iterator[None]:
    """When the file grew, and to what size."""
    over = threading.Event()

    def watch() -> None:
        size = 0
        while not over.wait(0.005):
            now = output.stat().st_size if output.exists() else 0
            if now > size:
                size = now
                grown.append((time.monotonic(), size))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _promised(status: Status) -> dict[str, float]:
    """By the standby, for a machine that vanishes: its limit, and how soon it is noticed."""
    standby = next(one.standby for one in status.tasks() if one.standby)
    tuned = [one.machine_s for one in standby.tuning]
    return {"noticed_s": standby.noticed.machine_s} | ({"recovered_s": max(tuned)} if tuned else {})


FAULTS = ("lost", "repeated", "wrong")


def faults(output: Path) -> dict[str, int]:
    """What is wrong with the whole output, by position."""
    expected = [(n, 2 * n) for n in range(ROWS) if n % 3]
    got = [json.loads(line) for line in output.read_text().splitlines()]
    positions = [row["_pos"] for row in got]
    return {
        "lost": len(set(range(1, len(expected) + 1)) - set(positions)),
        "repeated": len(positions) - len(set(positions)),
        "wrong": sum(
            not (0 < row["_pos"] <= len(expected))
            or expected[row["_pos"] - 1] != (row["n"], row["m"])
            for row in got
        ),
    }


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if an output is not that of a run without a cut, or came too late."""
    for row in result["rows"]:
        if any(row[name] for name in FAULTS):
            raise TaskError(f"{row['case']}: " + ", ".join(f"{row[one]} {one}" for one in FAULTS))
        if row["recovery"] == "2s" and row["gap_s"] > PROMISED_S[row["case"]]:
            raise TaskError(f"{row['case']}: no output for {row['gap_s']:g} s")
