"""Messages as they travel: derived from their classes, strict about what is missing, and ignorant
of what a later version has added."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from types import NoneType

import pytest
from pydantic import model_validator

import anabranch.coordinator.requests
import anabranch.link.messages as all_messages
from anabranch.errors import ErrorReport, Gap, ProtocolError, ScriptError, TaskError
from anabranch.link.message import (
    INLINE,
    Fetch,
    Message,
    Order,
    Origin,
    gathered,
    plain,
    read,
    read_answer,
    read_message,
    written,
)
from anabranch.link.messages import Ack, Acks, Attach, DropTasks, Follow, Points, StartSources
from anabranch.link.meter import Flow, Releases
from anabranch.stream.restart import RestartPoint
from tests.plan.samples import a_stream

ACTIONS = {
    all_messages: [
        "acks", "analyse", "attach", "batch", "beat", "calibrate", "check", "check_types", "claim",
        "consumer", "describe_pocket", "detach", "drop", "emulate", "end", "find_state", "follow",
        "go_on_without", "heartbeat", "hold_state", "join", "learn_model", "measured", "peers",
        "ping", "place", "plans", "points", "prepare", "push", "read_file", "read_state",
        "release_state", "routes", "schema", "ship", "stage_size", "stand_by", "start",
        "start_sources", "state_files", "state_query", "status", "take_over", "urgencies",
    ],
    anabranch.coordinator.requests: [
        "backup", "execute", "move", "picture", "replan", "samples", "status", "stop", "submit",
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Half:
    left: float
    right: float | None


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    half: Half | None = field(default=None, metadata=INLINE)
    last: int = 0

    _gathered = model_validator(mode="before")(gathered("half", "left"))


@pytest.mark.parametrize("module", ACTIONS, ids=lambda module: module.__name__)
def test_what_is_asked_has_the_names_that_it_always_had(module: object) -> None:
    """Sites and coordinators of several versions talk to each other."""
    kinds = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Message) and one not in (Message, Order, Fetch)
    ]
    assert sorted(kind.action for kind in kinds) == ACTIONS[module]  # type: ignore[index]


def test_a_message_says_by_its_type_what_it_is_answered_by() -> None:
    assert Acks.answer == list[tuple[str, int]]
    assert StartSources.answer is NoneType
    point = {"inputs": [3], "output": 2}
    assert read_answer(Points(), {"q": point}) == {"q": RestartPoint((3,), 2)}
    assert read_answer(DropTasks(), "whatever") is None
    with pytest.raises(ProtocolError, match=r"the answer to points: q\.output: Field required"):
        read_answer(Points(), {"q": {"inputs": [3]}})


@pytest.mark.parametrize(
    "message",
    [
        Acks((Ack.of_reader("s", "c", 7), Ack("s", "d", 1, None, 0, RestartPoint((1, 2), 3)))),
        DropTasks(("q",), standbys=("p",), born={"q": 3}, origin=Origin("id", "/there")),
        all_messages.Prepare((a_stream(),), ()),
        Attach("s", "c", point=RestartPoint((1,), 0)),
        Attach("s", "c", after=4),
        Follow("s", "c", 0),
    ],
)
def test_a_message_is_the_same_after_a_trip(message: Message[object]) -> None:
    assert read_message(type(message), written(message)) == message


def test_what_is_none_by_default_is_left_out_and_other_nones_are_said() -> None:
    assert "after" not in plain(Attach("s", "c"))
    ack = Ack("s", "c", 0, None, 0, RestartPoint((1,), 1))
    assert plain(ack)["received"] is None


def test_a_part_may_stand_among_the_keys_of_the_whole() -> None:
    whole = Whole("a", Half(math.inf, None), 3)
    assert list(plain(whole).items()) == [
        ("name", "a"), ("left", math.inf), ("right", None), ("last", 3),
    ]  # fmt: skip
    assert read(Whole, json.loads(written(whole))) == whole
    assert plain(Whole("a")) == {"name": "a", "last": 0}
    assert read(Whole, {"name": "a"}) == Whole("a")
    flow = Flow(1.0, 8.0, 4.0, Releases(0.25, 10.0, 1.5, ((3, 4),)), held=3)
    assert read(Flow, json.loads(written(flow))) == flow


def test_what_is_missing_or_wrong_is_said_with_its_place() -> None:
    for data, complaint in [
        ({"last": 1}, "Whole: name: Field required"),
        ({"name": "a", "left": "much", "right": 0.5}, "Whole: half.left: .* valid number"),
        ({"name": "a", "left": 1.0}, "Whole: half.right: Field required"),
        (["a"], "Whole: .*dictionary"),
    ]:
        with pytest.raises(ProtocolError, match=complaint):
            read(Whole, data)
    with pytest.raises(ProtocolError, match="message attach: consumer: Field required"):
        read_message(Attach, b'{"stream":"s"}')
    with pytest.raises(ProtocolError, match="message attach: : Invalid JSON"):
        read_message(Attach, b"{")


def test_what_a_later_version_has_added_is_ignored_at_any_depth() -> None:
    said = {"acks": [plain(Ack.of_reader("s", "c", 7)) | {"colour": "red"}], "haste": True}
    said["acks"][0]["point"]["depth"] = 3  # type: ignore[index]
    assert read_message(Acks, json.dumps(said).encode()) == Acks((Ack.of_reader("s", "c", 7),))
    assert read(Whole, {"name": "a", "left": 1, "right": 2, "middle": 3}) == Whole("a", Half(1, 2))


@pytest.mark.parametrize(
    "error",
    [
        TaskError("it failed", place="room1", remedy="Try again."),
        Gap("3 was asked for"),
        ScriptError("unknown stream", place="a.sql:1", excerpt="^"),
    ],
)
def test_an_error_is_the_same_after_a_trip(error: TaskError) -> None:
    again = read(ErrorReport, json.loads(written(error.report()))).error()
    assert type(again) is type(error)
    assert vars(again) == vars(error)


def test_an_error_of_a_kind_that_is_not_known_here_keeps_its_line() -> None:
    told = ErrorReport("OfTomorrow", "no luck", place="there")
    assert told.error().line() == told.line() == "there: no luck"
    assert "excerpt" not in plain(told)
