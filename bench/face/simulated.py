"""A system of any size that is only reported: to look at the dashboard, and to measure what looking
costs. Deterministic but for the clock; nothing runs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from anabranch.config.cluster import Cluster
from anabranch.coordinator.base.sites import SiteRecord
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import ConfigError
from anabranch.language import parse
from anabranch.language.source import Script
from anabranch.link.gate import Credentials

Status = dict[str, Any]
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
        self.cluster = Cluster.of_sites(self._names)
        self.credentials = Credentials(TOKEN)
        self.address = "127.0.0.1:1"
        self.stop_asked = threading.Event()
        self.sites = self

    # -- as the coordinator's sites ----------------------------------------------------------------

    def alive(self) -> list[str]:
        return [name for name in self._names if name not in self._down]

    def record(self, name: str) -> SiteRecord | None:
        report = next((one for one in self.status()["sites"] if one["site"] == name), None)
        return SiteRecord("127.0.0.1:1", 1, self._clock(), report) if report else None

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

    def status(self, *, ask: bool = False) -> Status:
        now = self._clock() - self._begun
        tasks: dict[str, list[Status]] = {name: [] for name in self._names}
        sources: dict[str, list[Status]] = {name: [] for name in self._names}
        protection: dict[str, Status] = {}
        for chain in range(self._chains):
            self._chain(chain, now, tasks, sources, protection)
        last = [f"q{chain:02d}d" for chain in range(self._chains)]
        return {
            "address": self.address, "pid": 1, "placement": self._reasons(), "deadlines": "",
            "approximations": {},
            "states": {name: {"state": "running", "reason": ""} for name in self._queries()},
            "sites": [self._site(name, tasks[name], sources[name]) for name in self._names],
            "streams": [f"s{chain:02d}" for chain in range(self._chains)], "tables": [],
            "pockets": [], "protection": protection,
            "standbys": dict.fromkeys(last[::2], "STANDBY RECOVERY 2s"),
            "reads": {name: [self._input(name)] for name in self._queries()},
            "ends": {},
        }  # fmt: skip

    def _queries(self) -> list[str]:
        return [f"q{chain:02d}{step}" for chain in range(self._chains) for step in "abcd"]

    def _input(self, query: str) -> str:
        chain, step = query[1:-1], query[-1]
        return f"s{chain}" if step == "a" else f"q{chain}{chr(ord(step) - 1)}"

    def _at(self, chain: int, step: int) -> str:
        return self._names[(chain * 7 + step * (1 + chain % 3)) % len(self._names)]

    def _chain(
        self, chain: int, now: float, tasks: dict[str, list[Status]],
        sources: dict[str, list[Status]], protection: dict[str, Status],
    ) -> None:  # fmt: skip
        rate = (50.0 + 40 * chain) * (1.2 + math.sin(now / 7 + chain))
        rows = int((50.0 + 40 * chain) * now)
        home = self._at(chain, 0)
        sources[home].append({
            "stream": f"s{chain:02d}", "site": home, "state": "running", "error": None,
            "rows": rows, "rate": rate, "late": chain % 5, "skipped": 0, "shed": 0,
        })  # fmt: skip
        for step, letter in enumerate("abcd"):
            name, site = f"q{chain:02d}{letter}", self._at(chain, step)
            tasks[site].append(self._task(name, site, chain, step, rate, rows, now))
        if chain % 2 == 0:
            other = self._names[(self._names.index(site) + 1) % len(self._names)]
            protection[name] = {"site": site, "standby": other, "epoch": 1, "problem": "",
                                "protected": True, "claim": 1}  # fmt: skip
            guard = {"role": "standby", "guard": "standby", "protects": True, "batch": 100,
                     "tuning": [{"why": "batch 100 keeps both limits", "overhead": 0.4,
                                 "recovery_s": 0.6}]}  # fmt: skip
            tasks[other].append(self._task(name, other, chain, 3, rate, rows, now) | guard)

    def _task(
        self, name: str, site: str, chain: int, step: int, rate: float, rows: int, now: float
    ) -> Status:
        share = 0.8**step
        slow = chain == 0 and step == 2
        latency = (3.0 + chain % 9) * (step + 1) + (400 * abs(math.sin(now / 20)) if slow else 0)
        return {
            "name": name, "query": name, "site": site, "role": "primary", "epoch": 0,
            "inputs": [self._input(name)], "output": name, "sink": None, "state": "running",
            "error": None, "problem": "", "pocket": None, "plans": "kept",
            "queue": int(2000 * abs(math.sin(now / 20))) if slow else 0, "position": rows,
            "instances": rows // 20 + 1, "rows_in": int(rows * share) + 1,
            "rows_out": int(rows * share * 0.8), "rate_in": rate * share,
            "rate_out": rate * share * 0.8, "fixed_ms": 0.6, "per_tuple_us": 4.0 + chain,
            "p50_ms": latency, "p99_ms": latency * 2.4,
            "deadline_ms": 500.0 if step == 3 and chain % 3 == 0 else None,
            "sub_deadline_ms": 125.0 if chain % 3 == 0 else None, "laxity_ms": 80.0,
            "judged": rows, "late": rows // 5000, "overran": 0,
        }  # fmt: skip

    def _site(self, name: str, tasks: list[Status], sources: list[Status]) -> Status:
        return {
            "site": name, "address": f"10.0.0.{self._names.index(name) + 1}:7101", "pid": 1,
            "state": "up", "problem": "", "tasks": tasks, "sources": sources, "missing": [],
            "lost": [], "kept": {}, "http": None,
            "round_trips": {other: 0.002 + 0.001 * (index % 40)
                            for index, other in enumerate(self._names) if other != name},
        }  # fmt: skip

    def _reasons(self) -> dict[str, Status]:
        return {name: {"text": "20% of the cost; at site01 all would cost 12% more"}
                for name in self._queries() if name[-1] in "bc"}  # fmt: skip
