"""Limits that no load lets a standby keep: known before a query runs."""

from __future__ import annotations

from anabranch.plan.protection import Standby, exact_duration, percentage
from anabranch.units import show_duration


def impossible(asked: Standby, heartbeat_us: int) -> tuple[str, str] | None:
    """What cannot hold and the nearest that can; None if it depends on the load.

    A death is noticed up to one heartbeat later, whatever the batch. With a batch of 1 nothing is
    released before it is shipped, so every tuple is sent to the standby."""
    if asked.recovery_us is not None and asked.recovery_us < heartbeat_us:
        wanted, least = exact_duration(asked.recovery_us), show_duration(heartbeat_us)
        return (
            f"RECOVERY {wanted} cannot hold: that a site has died is noticed up to {least} later",
            f"The least is RECOVERY {least}; heartbeat_interval in cluster.toml makes it less.",
        )
    overhead = 1.0 if asked.overhead is None else asked.overhead
    if asked.batch == 1 and overhead < 1 and not asked.compress:
        return (
            f"OVERHEAD {percentage(overhead)} cannot hold with BATCH 1, which sends"
            " every tuple to the standby",
            "Leave BATCH out, and it is chosen so that the limit holds; or OVERHEAD 100%.",
        )
    return None
