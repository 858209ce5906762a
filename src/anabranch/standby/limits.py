"""Limits that a standby cannot keep under any load: known before a query runs."""

from __future__ import annotations

from anabranch.plan.protection import Standby, exact_duration, percentage
from anabranch.standby.detector import Cadence, cadence
from anabranch.units import show_duration


def impossible(asked: Standby, heartbeat_us: int, missed: int) -> tuple[str, str] | None:
    """The limit that cannot hold and the nearest that can; None if it depends on the load.

    A death is noticed up to one beat later, whatever the batch. With a batch of 1 nothing is
    released before it is shipped, so every tuple is sent to the standby.
    """
    beats = cadence_of(asked, heartbeat_us, missed)
    if asked.recovery_us is not None and asked.recovery_us < round(beats.refused_s * 1e6):
        wanted, least = exact_duration(asked.recovery_us), _shown(beats.refused_s)
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


def reservation(asked: Standby, heartbeat_us: int, missed: int) -> str:
    """A warning about a RECOVERY that holds if a process dies, but not if its machine falls silent;
    otherwise empty.
    """
    silent_s = cadence_of(asked, heartbeat_us, missed).silent_s
    if asked.recovery_us is None or asked.recovery_us >= round(silent_s * 1e6):
        return ""
    return (
        f"RECOVERY {exact_duration(asked.recovery_us)} holds only if its process dies; that its"
        f" machine or the way to it has gone is noticed within {_shown(silent_s)}"
    )


def noticed(asked: Standby, heartbeat_us: int, missed: int) -> str:
    """The text for EXPLAIN: how soon both kinds of death are noticed."""
    beats = cadence_of(asked, heartbeat_us, missed)
    return (
        f"noticed within {_shown(beats.refused_s)} if the process dies,"
        f" {_shown(beats.silent_s)} if its machine does"
    )


def cadence_of(asked: Standby, heartbeat_us: int, missed: int) -> Cadence:
    recovery_s = None if asked.recovery_us is None else asked.recovery_us / 1e6
    return cadence(heartbeat_us / 1e6, missed, recovery_s)


def _shown(seconds: float) -> str:
    return show_duration(seconds * 1e6)
