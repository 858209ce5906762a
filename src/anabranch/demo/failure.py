"""The death of the security centre and what follows, read from the system's status."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.coordinator.status.report import SystemStatus
from anabranch.demo.apartment import CENTRE, ROOMS, alarm_query
from anabranch.demo.record import Alarm

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
        found = [status.protection.get(name) for name in ALARMS]
        primaries = [one for one in found if one]
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
