"""Pockets to submit, and how they are."""

from __future__ import annotations

import time

from anabranch.link.reports import TaskReport
from anabranch.plan.catalog import PocketDef
from anabranch.pocket import Pocket
from anabranch.site.programs.submission import classes, submission
from bench.systems.system import System

ALARM = """
from anabranch.pocket import Pocket

class FireAlarm(Pocket):
    query = "SELECT n, n * 10.0 AS Temp FROM ticks WHERE n > 2"
    output = "CREATE STREAM alarm (message string)"

    def row(self, row):
        yield {"message": f"fire: {row['Temp']:.0f}"}
"""
TICKS = """
CREATE STREAM ticks (n BIGINT) FROM rate(tps = 100000, rows = 6, n = 'value',
  start = '2026-01-31T12:00:00Z') AT room1;
"""
START_US = 1_769_860_800_000_000


def submit(system: System, code: str, name: str | None = None) -> PocketDef:
    """As `anabranch submit` does it."""
    (pocket,) = classes(code, "/nowhere/alarm.py", Pocket)
    return system.coordinator.submit(
        submission(pocket, code, "/nowhere/alarm.py", name=name), str(system.folder)
    )


def tasks(system: System) -> dict[str, TaskReport]:
    return {task.name: task for task in system.coordinator.status().tasks()}


def wait_for(system: System, task: str, state: str, timeout_s: float = 20.0) -> TaskReport:
    """The task's report once it is in `state`."""
    deadline = time.monotonic() + timeout_s
    while (report := tasks(system)[task]).state != state:
        assert time.monotonic() < deadline, report
        time.sleep(0.02)
    return report
