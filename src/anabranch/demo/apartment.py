"""The script of the demonstration, and what is known of it beforehand."""

from __future__ import annotations

from importlib import resources

from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.config.model import YOUNG_JVM, PlacementSettings
from anabranch.language.source import Script

ROOMS = ("room1", "room2", "room3")
CENTRE, SPARE, DESK = "centre", "centre2", "desk"
HUBS = ("north", "south")
"""Sites in between, which only the later scenes need."""
READINGS = 120
"""Of each sensor; the whole story is told in so many."""
ALARM_ABOVE = 50.0
"""Degrees Celsius."""
KILL_AFTER = 0.55
"""The part of the story after which the centre is killed, if it burns by then."""
_TPS = 4


def script_text() -> str:
    """The script as shipped."""
    return resources.files("anabranch.demo").joinpath("apartment.sql").read_text(encoding="utf-8")


def script_lasting(seconds: float) -> Script:
    """The same story in `seconds`: the sensors measure the same values, only faster or slower."""
    tps = f"tps = {READINGS / seconds:.6g}"
    return Script(script_text().replace(f"tps = {_TPS}", tps), "apartment.sql")


def cluster() -> ClusterConfig:
    """The sites. All but the centres share a process; each centre has its own, so that it can be
    killed alone.
    """
    together = [SiteConfig(name=name, conf=YOUNG_JVM) for name in (*ROOMS, DESK, *HUBS)]
    apart = [
        SiteConfig(name=name, isolation="process", master="local[1]", conf=YOUNG_JVM)
        for name in (CENTRE, SPARE)
    ]
    sites = {one.name: one for one in (*together, *apart)}
    return ClusterConfig(
        sites=sites, heartbeat_interval_us=250_000, placement=PlacementSettings(sample_us=1_000_000)
    )


def alarm_query(room: str) -> str:
    return f"alarm{room[-1]}"


def temperature_file(room: str) -> str:
    """The file in the output folder to which the room writes its temperatures."""
    return f"temperature{room[-1]}.jsonl"


def alarm_file(room: str) -> str:
    """The file in the output folder to which the desk writes the alarms of `room`."""
    return f"{alarm_query(room)}.jsonl"
