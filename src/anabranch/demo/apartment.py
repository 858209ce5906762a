"""The script of the demonstration and what is known of it beforehand."""

from __future__ import annotations

from importlib import resources

from anabranch.language.source import Script

ROOMS = ("room1", "room2", "room3")
CENTRE = "centre"
READINGS = 120
"""Of each sensor; the whole story is told in so many."""
ALARM_ABOVE = 50.0
"""Degrees Celsius."""
_TPS = 4


def script_text() -> str:
    """The script as shipped."""
    return resources.files("anabranch.demo").joinpath("apartment.sql").read_text(encoding="utf-8")


def script_lasting(seconds: float) -> Script:
    """The same story told in `seconds`: the sensors measure as often, only faster or slower."""
    tps = f"tps = {READINGS / seconds:.6g}"
    return Script(script_text().replace(f"tps = {_TPS}", tps), "apartment.sql")


def temperature_file(room: str) -> str:
    """Where the room writes its temperatures, in the output folder."""
    return f"temperature{room[-1]}.jsonl"


def alarm_file(room: str) -> str:
    """Where the centre writes the alarms of `room`, in the output folder."""
    return f"alarm{room[-1]}.jsonl"
