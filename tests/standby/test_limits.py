"""Limits of a STANDBY that cannot hold, whatever the load."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.plan.protection import UNLIMITED, Standby
from anabranch.standby.choice import Limits, choose
from anabranch.standby.limits import impossible
from tests.standby.loads import paper

HEARTBEAT_US = 250_000


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"recovery_us": 100_000}, "RECOVERY 100ms cannot hold: that a site has died is noticed up"
         " to 250ms later. The least is RECOVERY 250ms; heartbeat_interval in cluster.toml makes it"
         " less."),
        ({"batch": 1, "overhead": 0.2}, "OVERHEAD 20% cannot hold with BATCH 1, which sends every"
         " tuple to the standby. Leave BATCH out, and it is chosen so that the limit holds; or"
         " OVERHEAD 100%."),
        ({"batch": 1, "overhead": 0.0}, "OVERHEAD 0% cannot hold with BATCH 1, which sends every"
         " tuple to the standby. Leave BATCH out, and it is chosen so that the limit holds; or"
         " OVERHEAD 100%."),
    ],
)  # fmt: skip
def test_what_no_load_lets_hold(asked: dict[str, Any], message: str) -> None:
    wrong = impossible(Standby(**asked), HEARTBEAT_US)
    assert wrong is not None
    assert ". ".join(wrong) == message


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"recovery_us": 250_000}, {"overhead": 0.0}, {"batch": 1},
        {"batch": 1, "overhead": 1.0},
        {"batch": 2, "overhead": 0.1}, {"batch": UNLIMITED, "recovery_us": 300_000},
        {"batch": 1, "overhead": 0.2, "compress": "zstd"},
    ],
)  # fmt: skip
def test_what_some_load_lets_hold(asked: dict[str, Any]) -> None:
    assert impossible(Standby(**asked), HEARTBEAT_US) is None


def test_the_model_agrees() -> None:
    """Even the lightest load does not recover sooner than a heartbeat, nor ship less at b = 1."""
    light = paper(rate=1.0, per_tuple_s=0.0, fixed_s=0.0, rtt_s=0.0)
    assert choose(light, Limits()).cost.worst_recovery_s >= 0.25
    assert "recovery" in choose(light, Limits(recovery_s=0.249)).broken
