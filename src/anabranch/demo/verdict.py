"""Compares the alarms with those of a run without failures, computed from the rooms' own
temperatures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from anabranch.demo.apartment import ALARM_ABOVE
from anabranch.demo.record import Record


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
