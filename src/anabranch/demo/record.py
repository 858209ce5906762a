"""What came out of the apartment's queries so far."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.demo.apartment import ROOMS, alarm_file, temperature_file
from anabranch.demo.tail import Tail

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
        self._temperatures = {room: Tail(folder / temperature_file(room)) for room in ROOMS}
        self._alarms = {room: Tail(folder / alarm_file(room)) for room in ROOMS}
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
