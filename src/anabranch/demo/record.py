"""What came out of the apartment's queries so far, whether that is right, and what came of the
security centre's death.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.demo.apartment import (
    ALARM_ABOVE,
    CENTRE,
    ROOMS,
    alarm_file,
    alarm_query,
    temperature_file,
)


class GrowingFile:
    """Gives each line once, when its newline is there. The file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new(self) -> list[dict[str, Any]]:
        if not self._path.exists() or self._path.stat().st_size == self._read:
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]


LOOK_S = 0.01
"""How often the files are looked at, which is also how exact the latencies are."""


@dataclass(frozen=True)
class Alarm:
    """`latency_ms` is the time from the reading's event time until its alarm stood in the desk's
    file.
    """

    room: str
    celsius: float
    ts_us: int
    time: float
    latency_ms: float


class Record:
    """The temperatures of each room and all alarms, in the order in which they came."""

    def __init__(self) -> None:
        self.celsius: defaultdict[str, list[float]] = defaultdict(list)
        self.times: defaultdict[str, list[int]] = defaultdict(list)
        """Their event times, in µs."""
        self.alarms: list[Alarm] = []

    def add_temperature(self, room: str, celsius: float, ts_us: int) -> None:
        self.celsius[room].append(celsius)
        self.times[room].append(ts_us)

    def add_alarm(self, room: str, celsius: float, ts_us: int, seen: float) -> None:
        latency_ms = max(seen - ts_us / 1e6, 0.0) * 1e3
        self.alarms.append(Alarm(room, celsius, ts_us, seen, latency_ms))

    def alarms_per_room(self) -> Mapping[str, int]:
        """The number of alarms by room; rooms without an alarm count 0."""
        return Counter(alarm.room for alarm in self.alarms)

    def latency_ms(self, quantile: float) -> float | None:
        """The quantile over all alarms; None before the first. `quantile` is between 0 and 1."""
        latencies = sorted(alarm.latency_ms for alarm in self.alarms)
        return latencies[round(quantile * (len(latencies) - 1))] if latencies else None


class Watcher:
    """Fills a record from the files in `folder`, in a thread of its own, until closed."""

    def __init__(self, folder: Path) -> None:
        self.record = Record()
        self._temperatures = {room: GrowingFile(folder / temperature_file(room)) for room in ROOMS}
        self._alarms = {room: GrowingFile(folder / alarm_file(room)) for room in ROOMS}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-watcher", daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends. The record then holds all that the files hold."""
        self._closed.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for room, tail in self._alarms.items():
            for row in tail.new():
                self.record.add_alarm(room, row["celsius"], row["_ts"], time.time())
        for room, tail in self._temperatures.items():
            for row in tail.new():
                self.record.add_temperature(room, row["celsius"], row["_ts"])


@dataclass(frozen=True)
class Verdict:
    """How many alarms there were, and how many were missing, came twice, or had no cause."""

    alarms: int
    lost: int
    doubled: int
    false: int

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.false)

    def __str__(self) -> str:
        text = f"{self.alarms} alarms, {_count(self.lost)} lost, {_count(self.doubled)} doubled"
        return text + (f", {self.false} for no reason" if self.false else "")


def verdict(record: Record) -> Verdict:
    """An alarm belongs to the temperature of its room with the same event time."""
    expected = {
        (room, ts)
        for room, times in record.times.items()
        for ts, celsius in zip(times, record.celsius[room], strict=True)
        if celsius > ALARM_ABOVE
    }
    raised = Counter((alarm.room, alarm.ts_us) for alarm in record.alarms)
    return Verdict(
        alarms=len(record.alarms),
        lost=len(expected - raised.keys()),
        doubled=sum(count - 1 for count in raised.values()),
        false=len(raised.keys() - expected),
    )


def _count(number: int) -> str:
    return str(number) if number else "none"


ALARMS = tuple(alarm_query(room) for room in ROOMS)


@dataclass
class Failure:
    """All times are in seconds since 1970; None as long as it has not happened."""

    killed: float | None = None
    took_over: dict[str, float] = field(default_factory=dict)
    """Alarm query → when its standby became its primary."""
    protected_again: float | None = None
    primary: str = CENTRE
    standby: str | None = None

    def look(self, status: SystemStatus, now: float) -> None:
        """Takes note of what has happened since the last look."""
        protections = [status.protection.get(name) for name in ALARMS]
        primaries = [one for one in protections if one]
        protected = len(primaries) == len(ALARMS) and all(one.protected for one in primaries)
        self.standby = primaries[-1].standby if protected else None
        if self.killed is None:
            return
        for task in status.tasks():
            claimed = task.standby.timeline.get("claimed", 0.0) if task.standby else 0.0
            if task.name in ALARMS and task.role == "primary" and claimed > self.killed:
                self.took_over[task.name] = claimed
                self.primary = task.site
        if self.over and protected and self.protected_again is None:
            self.protected_again = now

    @property
    def over(self) -> bool:
        """Whether every alarm query has a primary again."""
        return len(self.took_over) == len(ALARMS)

    @property
    def took_ms(self) -> float | None:
        """The time from the kill until the last query had been taken over."""
        if self.killed is None or not self.over:
            return None
        return (max(self.took_over.values()) - self.killed) * 1e3

    def without_alarms_s(self, alarms: list[Alarm]) -> float | None:
        """The time from the kill until the first alarm from the new primary; alarms that were on
        their way before do not count.
        """
        if self.killed is None or not self.took_over:
            return None
        claimed = min(self.took_over.values())
        after = [alarm.time for alarm in alarms if alarm.time >= claimed]
        return min(after) - self.killed if after else None

    def line(self) -> str:
        """The story so far, in a line."""
        if self.killed is None:
            by = f"protected by {self.standby}" if self.standby else "not protected yet"
            return f"{CENTRE} raises the alarms, {by}"
        parts = [f"{CENTRE} killed"]
        if self.took_ms is not None:
            parts.append(f"{self.primary} took over after {self.took_ms:,.0f} ms")
        if self.protected_again is not None:
            parts.append(f"protected again by {self.standby}" if self.standby else "unprotected")
        return " → ".join(parts)
