"""Which site goes on with the part of a server that is lost for good."""

from __future__ import annotations

from pathlib import Path

from anabranch.coordinator.deploy.parts import is_shared, moved
from anabranch.plan.catalog import StreamDef
from anabranch.plan.stage import Role
from bench.stage.input import stage_over


def part(number: int, site: str, role: Role = "part", moves: int = 0) -> StreamDef:
    update = {
        "sites": ("a", "b", "c"),
        "part": number,
        "role": role,
        "name": "q-1",
        "lost_us": 5_000_000,
        "moves": moves,
    }
    stage = stage_over(Path(".")).model_copy(update=update)
    return StreamDef(name=f"q.stage.{number}", columns=(), site=site, stage=stage)


PARTS = [part(0, "a"), part(1, "b"), part(2, "c")]


def test_one_that_was_away_for_long_is_replaced_by_the_one_with_least_to_do() -> None:
    (found,) = moved(PARTS, {"b": 6.0}, {"a", "c"})
    assert (found.name, found.site) == ("q.stage.1", "a")
    assert found.stage
    assert found.stage.moves == 1
    again = [PARTS[0], found, PARTS[2]]
    assert [(one.name, one.site) for one in moved(again, {"a": 9.0}, {"b", "c"})] == [
        ("q.stage.0", "b"),
        ("q.stage.1", "b"),
    ]


def test_nobody_is_replaced_in_haste_or_by_nobody() -> None:
    assert moved(PARTS, {"b": 4.0}, {"a", "c"}) == []
    assert moved(PARTS, {"a": 9.0, "b": 9.0, "c": 9.0}, {"d"}) == []


def test_a_stage_alone_stays_where_it_is() -> None:
    alone = StreamDef(name="q.stage", columns=(), site="a", stage=stage_over(Path(".")))
    assert not is_shared(alone)
    assert is_shared(part(0, "a", "merge"))
