"""Limits of a STANDBY that cannot hold, whatever the load."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.plan.service_levels import UNLIMITED, Standby
from anabranch.standby.choice import StandbyLimits, choose
from anabranch.standby.detector import impossible, noticed, reservation
from tests.standby.loads import paper

HEARTBEAT_US = 250_000
MISSED = 4


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"recovery_us": 50_000},
            "RECOVERY 50ms cannot hold: that a site has died is noticed up"
            " to 100ms later. The least is RECOVERY 100ms; heartbeat_interval in cluster.toml makes"
            " it less.",
        ),
        (
            {"batch": 1, "overhead": 0.2},
            "OVERHEAD 20% cannot hold with BATCH 1, which sends every"
            " tuple to the standby. Leave BATCH out, and it is chosen so that the limit holds; or"
            " OVERHEAD 100%.",
        ),
        (
            {"batch": 1, "overhead": 0.0},
            "OVERHEAD 0% cannot hold with BATCH 1, which sends every"
            " tuple to the standby. Leave BATCH out, and it is chosen so that the limit holds; or"
            " OVERHEAD 100%.",
        ),
    ],
)
def test_what_no_load_lets_hold(asked: dict[str, Any], message: str) -> None:
    wrong = impossible(Standby(**asked), HEARTBEAT_US, MISSED)
    assert wrong is not None
    assert ". ".join(wrong) == message


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"recovery_us": 100_000},
        {"overhead": 0.0},
        {"batch": 1},
        {"batch": 1, "overhead": 1.0},
        {"batch": 2, "overhead": 0.1},
        {"batch": UNLIMITED, "recovery_us": 300_000},
        {"batch": 1, "overhead": 0.2, "compress": "zstd"},
    ],
)
def test_what_some_load_lets_hold(asked: dict[str, Any]) -> None:
    assert impossible(Standby(**asked), HEARTBEAT_US, MISSED) is None


def test_one_that_holds_for_a_process_and_not_for_a_machine_says_so() -> None:
    said = reservation(Standby(recovery_us=400_000), HEARTBEAT_US, MISSED)
    assert said == (
        "RECOVERY 400ms holds only if its process dies; that its machine or the way to it has gone"
        " is noticed within 500ms"
    )
    assert reservation(Standby(recovery_us=700_000), HEARTBEAT_US, MISSED) == ""
    assert reservation(Standby(batch=1), HEARTBEAT_US, MISSED) == ""


def test_both_times_are_told_beforehand() -> None:
    text = noticed(Standby(recovery_us=2_000_000), 500_000, MISSED)
    assert text == "noticed within 300ms if the process dies, 1.5s if its machine does"


def test_the_least_limit_holds_for_the_longer_of_both_times() -> None:
    """With a limit the batch is chosen for a machine that vanishes, and both times are said."""
    load = paper(heartbeat_s=0.3, missed=5.0, silence=5.0)
    choice = choose(load, StandbyLimits(recovery_s=2.0))
    assert 1.5 < choice.cost.worst_recovery_s <= 2.0
    assert "if its process dies" in choice.why
    assert "if its machine does" in choice.why
    assert "recovery" in choose(load, StandbyLimits(recovery_s=1.4)).broken


def test_the_model_agrees() -> None:
    """Even the lightest load does not recover sooner than a heartbeat, nor ship less at b = 1."""
    light = paper(rate=1.0, per_tuple_s=0.0, fixed_s=0.0, rtt_s=0.0)
    assert choose(light, StandbyLimits()).cost.worst_recovery_s >= 0.25
    assert "recovery" in choose(light, StandbyLimits(recovery_s=0.249)).broken
