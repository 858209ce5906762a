"""A system of any size that is only reported: to look at the dashboard, and to measure what looking
costs. Deterministic but for the clock; nothing runs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.reports import (
    PlacementReport,
    ProtectionReport,
    QueryState,
    SiteStatus,
    SystemStatus,
)
from anabranch.coordinator.base.sites import SiteRecord
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import ConfigError
from anabranch.language import parse
from anabranch.language.source import Script
from anabranch.link.gate import Credentials
from anabranch.link.reports import PlanReport, SiteReport, SourceReport, TaskReport
from simulation.reports import a_source, a_status, a_task, assigned, guarding, tuned, up

TOKEN = "simulated"


class SimulatedCoordinator:
    """What the face asks of a coordinator. `operators` tasks in chains of four over `sites` sites,
    each chain with a stream, a deadline or a standby; rates swing, one queue grows and shrinks."""

    def __init__(self, sites: int, operators: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()
        self._names = [f"site{number:02d}" for number in range(1, sites + 1)]
        self._chains = max(1, operators // 4)
        self._down: dict[str, float] = {}
        self.cluster = ClusterConfig.of_sites(self._names)
        self.credentials = Credentials(TOKEN)
        self.address = "127.0.0.1:1"
        self.stop_asked = threading.Event()
        self.sites = self

    # -- as the coordinator's sites ----------------------------------------------------------------

    def alive(self) -> list[str]:
        return [name for name in self._names if name not in self._down]

    def record(self, name: str) -> SiteRecord | None:
        for one in self.status().sites:
            if one.site == name and isinstance(one, SiteReport):
                return SiteRecord("127.0.0.1:1", 1, self._clock(), one)
        return None

    # -- as the coordinator --------------------------------------------------------------------

    def execute(self, script: Script, base: str) -> list[Answer]:
        statements = parse(script)
        return [Answer("line", text=f"simulated: {type(one).__name__}") for one in statements]

    def explain(self, script: Script, base: str, *, asks_sites: bool = True) -> Answer:
        return self.execute(script, base)[0]

    def move(self, query: str, site: str) -> str:
        raise ConfigError("nothing moves in a simulated system")

    def replan(self, *, dry_run: bool) -> Any:
        raise ConfigError("nothing moves in a simulated system")

    def status(self, *, ask: bool = False) -> SystemStatus:
        now = self._clock() - self._begun
        parts: dict[str, list[TaskReport | SourceReport]] = {name: [] for name in self._names}
        protection: dict[str, ProtectionReport] = {}
        for chain in range(self._chains):
            self._chain(chain, now, parts, protection)
        last = [f"q{chain:02d}d" for chain in range(self._chains)]
        return a_status(
            *(self._site(name, parts[name]) for name in self._names),
            address=self.address,
            pid=1,
            placement=self._reasons(),
            states={name: QueryState("running") for name in self._queries()},
            streams=tuple(f"s{chain:02d}" for chain in range(self._chains)),
            protection=protection,
            standbys=dict.fromkeys(last[::2], "STANDBY RECOVERY 2s"),
            reads={name: (self._input(name),) for name in self._queries()},
        )

    def _queries(self) -> list[str]:
        return [f"q{chain:02d}{step}" for chain in range(self._chains) for step in "abcd"]

    def _input(self, query: str) -> str:
        chain, step = query[1:-1], query[-1]
        return f"s{chain}" if step == "a" else f"q{chain}{chr(ord(step) - 1)}"

    def _at(self, chain: int, step: int) -> str:
        return self._names[(chain * 7 + step * (1 + chain % 3)) % len(self._names)]

    def _chain(
        self,
        chain: int,
        now: float,
        parts: dict[str, list[TaskReport | SourceReport]],
        protection: dict[str, ProtectionReport],
    ) -> None:
        rate = (50.0 + 40 * chain) * (1.2 + math.sin(now / 7 + chain))
        rows = int((50.0 + 40 * chain) * now)
        home = self._at(chain, 0)
        parts[home].append(a_source(f"s{chain:02d}", home, rows=rows, rate=rate, late=chain % 5))
        for step, letter in enumerate("abcd"):
            name, site = f"q{chain:02d}{letter}", self._at(chain, step)
            parts[site].append(self._task(name, site, chain, step, rate, rows, now))
        if chain % 2 == 0:
            other = self._names[(self._names.index(site) + 1) % len(self._names)]
            protection[name] = assigned(site, other, epoch=1)
            task = self._task(name, other, chain, 3, rate, rows, now)
            standby = guarding(site, tuning=(tuned(),))
            parts[other].append(replace(task, role="standby", standby=standby))

    def _task(
        self, name: str, site: str, chain: int, step: int, rate: float, rows: int, now: float
    ) -> TaskReport:
        share = 0.8**step
        slow = chain == 0 and step == 2
        latency = (3.0 + chain % 9) * (step + 1) + (400 * abs(math.sin(now / 20)) if slow else 0)
        return a_task(
            name,
            site,
            inputs=(self._input(name),),
            plans=(PlanReport("kept", "kept plan 0.4 ms for some 20 tuples", 1, 0),),
            queue=int(2000 * abs(math.sin(now / 20))) if slow else 0,
            position=rows,
            instances=rows // 20 + 1,
            rows_in=int(rows * share) + 1,
            rows_out=int(rows * share * 0.8),
            rate_in=rate * share,
            rate_out=rate * share * 0.8,
            fixed_ms=0.6,
            per_tuple_us=4.0 + chain,
            p50_ms=latency,
            p99_ms=latency * 2.4,
            deadline_ms=500.0 if step == 3 and chain % 3 == 0 else None,
            sub_deadline_ms=125.0 if chain % 3 == 0 else None,
            laxity_ms=80.0,
            judged=rows,
            late=rows // 5000,
        )

    def _site(self, name: str, parts: Iterable[TaskReport | SourceReport]) -> SiteStatus:
        trips = {
            other: 0.002 + 0.001 * (index % 40)
            for index, other in enumerate(self._names)
            if other != name
        }
        address = f"10.0.0.{self._names.index(name) + 1}:7101"
        return up(name, *parts, address=address, round_trips=trips)

    def _reasons(self) -> dict[str, PlacementReport]:
        why = "20% of the cost; at site01 all would cost 12% more"
        return {
            name: PlacementReport(name, "site02", 2.0, 0.2, "site01", 1.2, why)
            for name in self._queries()
            if name[-1] in "bc"
        }
