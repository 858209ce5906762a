"""A running query of the standby experiment: what it costs, and what a failure does to it."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from anabranch.coordinator.base.reports import ProtectionReport
from anabranch.errors import AnabranchError, TaskError
from anabranch.link.message import plain
from anabranch.link.messages import ShipBy, Status
from anabranch.link.reports import SiteReport, StandbyReport, TuningReport
from anabranch.standby.cost import Load, StandbyModel
from bench.standby.queries import Operator, check
from bench.systems.cluster import FailingCluster
from bench.systems.processes import Busy
from bench.systems.system import read_lines

WORKERS = ("centre", "centre2", "centre3")
LOOK_S = 0.05
SETTLE_S = 2.5
"""So long a producer looks back when it measures."""
WARM_S = 10.0
"""So long a standby gets used to a batch size before its primary dies: its code is compiled as it
runs, and on a machine with few cores that takes a while."""
TRIES = 5
LONGER = 3
"""So many times the usual window where some is shipped and some is not: a batch more or less."""


Traffic = tuple[int, int, int]
"""Bytes so far to the primary, and to the standby as they went over the wire and before that."""


class Deployed:
    """An operator with a standby, from deployment to the check of its whole output."""

    def __init__(
        self, cluster: FailingCluster, operator: Operator, source: str, options: str
    ) -> None:
        cluster.wait_until_up()
        self.cluster = cluster
        self.operator = operator
        self.source = source
        self.output = cluster.folder / "out.jsonl"
        self.output.unlink(missing_ok=True)
        cluster.execute(operator.script(source, f"STANDBY ON {WORKERS[1]} {options}"))
        self.wait_until_protected()

    def close(self) -> int:
        """Stop it; raises TaskError unless everything that came out is as it should be."""
        sent = self.site(self.source).sources[0].rows
        time.sleep(2.0)
        self.cluster.drop_all()
        return check(read_lines(self.output), self.operator, at_least=sent)

    def wait_until_protected(self) -> None:
        """By a worker, which can be killed in its turn; and until that has measured its load."""
        self._wait_for_protection()
        if self.standby() not in WORKERS:
            self.cluster.wait_until_up()
            free = [worker for worker in WORKERS if worker != self.assignment().site]
            self.cluster.coordinator.stand_by("q", free[0])
            self._wait_for_protection()

    def _wait_for_protection(self) -> None:
        self.cluster.wait_for(
            lambda status: self.cluster.protected(status) and bool(self.loads()), "protection", 120
        )

    def site(self, name: str) -> SiteReport:
        """Its report as of now, not of its last heartbeat."""
        return self.cluster.coordinator.sites.peer(name).send(Status())

    def assignment(self) -> ProtectionReport:
        return self.cluster.status().protection["q"]

    def standby(self) -> str:
        """Its site. Raises TaskError while there is none."""
        found = self.assignment().standby
        if found is None:
            raise TaskError("there is no standby")
        return found

    def standing_by(self, site: str) -> StandbyReport | None:
        """What the task says there of its standing by, now or before it took over."""
        return next((one.standby for one in self.site(site).tasks if one.name == "q"), None)

    def batch_by(self, batch: int) -> None:
        asked = ShipBy("r", "q", self.assignment().claim, batch)
        self.cluster.coordinator.sites.peer(self.source).send(asked)

    def loads(self) -> list[Load]:
        """The newest measurement, if there is one."""
        return [one.load for one in self._tuning(self.standby())]

    # -- in health -------------------------------------------------------------------------------

    def healthy(self, batch: int, seconds: float) -> dict[str, Any]:
        """Overhead, as measured and as the model says, and CPU seconds a second, at `batch`.
        Measured anew if a standby took over, as it may when the machine is too busy to answer a
        heartbeat in time."""
        for _ in range(TRIES):
            self.wait_until_protected()
            before = self.assignment()
            with suppress(AnabranchError):
                found = self._healthy(batch, seconds)
                if self.assignment().epoch == before.epoch:
                    return found
        raise TaskError("the machine is too busy: standbys took over from healthy primaries")

    def _healthy(self, batch: int, seconds: float) -> dict[str, Any]:
        self.batch_by(batch)
        time.sleep(SETTLE_S)
        busy = {role: Busy(pid) for role, pid in self._pids().items()}
        edges, loads = [self._traffic()], self.loads()
        begun = looked = time.monotonic()
        while time.monotonic() < begun + seconds or (
            time.monotonic() < begun + LONGER * seconds and _partly(edges, self._traffic())
        ):
            time.sleep(LOOK_S)
            traffic = self._traffic()
            if traffic[1] > edges[-1][1]:
                edges.append(traffic)
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                loads += self.loads()
        cpu = {f"cpu_{role}": one.share() for role, one in busy.items()}
        last = self._traffic()
        return {
            "overhead": overhead(edges, last),
            "model_overhead": _mean(StandbyModel(load).overhead(batch) for load in loads),
            "zero_from": max((StandbyModel(load).zero_from() for load in loads), default=0),
            "ratio": _ratio(edges[0], last),
            "cpu": sum(cpu.values()),
            **cpu,
        }

    def _traffic(self) -> Traffic:
        traffic = self.site(self.source).traffic.get("r")
        return (traffic.primary, traffic.packed, traffic.shipped) if traffic else (0, 0, 0)

    def _pids(self) -> dict[str, int]:
        return {"source": self.site(self.source).pid, "standby": self.site(self.standby()).pid}

    # -- a failure -------------------------------------------------------------------------------

    def fail(self, batch: int, rng: random.Random, phase: float) -> dict[str, Any]:
        """Kill the primary at a `phase` of its standby's heartbeats, and time the standby: until it
        has caught up, and how long nothing came out; with what the model says. The third worker
        must be there to stand by next."""
        self.cluster.wait_until_up()
        self.wait_until_protected()
        self.batch_by(batch)
        time.sleep(WARM_S + rng.random())
        assignment, standby, loads = self.assignment(), self.standby(), self.loads()
        with Watch(self.output) as watch:
            time.sleep(0.3)
            self._wait_for_phase(standby, phase)
            killed = time.time()
            self.cluster.signal(assignment.site, signal.SIGKILL)
            timeline = self._recovered(standby)
            time.sleep(0.7)
        models = [StandbyModel(load) for load in loads]
        return {
            "recovery_s": timeline["recovered"] - killed,
            "noticed_s": timeline["noticed"] - killed,
            "claimed_s": timeline["claimed"] - killed,
            "gap_s": watch.gap(killed),
            "model_recovery_s": _mean(model.mean_recovery(batch) for model in models),
            "model_worst_s": _mean(model.worst_recovery(batch) for model in models),
            "load": plain(self._tuning(standby)),
        }

    def _tuning(self, site: str) -> Sequence[TuningReport]:
        standby = self.standing_by(site)
        return standby.tuning if standby else ()

    def _wait_for_phase(self, standby: str, phase: float) -> None:
        """Of the interval that begins when the primary answers a heartbeat."""
        for _ in range(100):
            standing_by = self.standing_by(standby)
            moment = (standing_by.beaten if standing_by else 0.0) + phase * self.cluster.heartbeat_s
            if (wait := moment - time.time()) > 0:
                time.sleep(wait)
                return
            time.sleep(0.01)

    def _recovered(self, site: str) -> dict[str, float]:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(AnabranchError):
                standby = self.standing_by(site)
                if standby and "recovered" in standby.timeline:
                    return standby.timeline
            time.sleep(LOOK_S)
        raise TaskError(f"site {site} did not take over within 60 s")


class Watch:
    """Notes when a file grows, to 5 ms."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._grown: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        size = -1
        while not self._over.wait(0.005):
            now = self._path.stat().st_size if self._path.exists() else 0
            if now > size:
                self._grown.append(time.time())
                size = now

    def gap(self, since: float) -> float:
        return longest_gap(self._grown, since)


def longest_gap(instants: list[float], since: float) -> float:
    """The longest time between two that are neighbours, the later of which is after `since`."""
    found = (after - before for before, after in pairwise(instants) if after > since)
    return max(found, default=0.0)


def _mean(values: Iterable[float]) -> float:
    """0 of nothing: a standby that has just taken over measures nothing."""
    found = list(values)
    return fmean(found) if found else 0.0


def _ratio(first: Traffic, last: Traffic) -> float:
    """Of compression; 1 if nothing was shipped."""
    plain = last[2] - first[2]
    return (last[1] - first[1]) / plain if plain else 1.0


def overhead(edges: Sequence[Traffic], last: Traffic) -> float:
    """Of what was sent at the beginning, after each shipment, and at the end: from the first
    shipment to the last if there were several, so that batches count whole."""
    first = edges[0]
    if len(edges) > 3:
        first, last = edges[1], edges[-1]
    sent = last[0] - first[0]
    return (last[1] - first[1]) / sent if sent else 0.0


def _partly(edges: Sequence[Traffic], last: Traffic) -> bool:
    return 0.02 < overhead(edges, last) / _ratio(edges[0], last) < 0.98
