"""Specs are the same after a trip through JSON: to a site, into the catalog and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from pydantic import TypeAdapter, ValidationError

from anabranch.plan.catalog import Definition, QueryDef, StreamDef
from anabranch.plan.operators import Call
from anabranch.plan.service_levels import Standby
from anabranch.plan.tasks import TaskSpec
from tests.plan import samples

DEFINITION: TypeAdapter[Any] = TypeAdapter(Definition)


def types(options: dict[str, Any]) -> list[type]:
    return [type(value) for value in options.values()]


@given(samples.streams)
def test_streams(stream: StreamDef) -> None:
    again = DEFINITION.validate_json(stream.model_dump_json())
    assert again == stream
    assert types(again.source.options) == types(stream.source.options)


@given(samples.queries)
def test_queries(query: QueryDef) -> None:
    assert DEFINITION.validate_json(query.model_dump_json()) == query


@given(samples.tasks)
def test_tasks_as_actions_carry_them(task: TaskSpec) -> None:
    again = TaskSpec.model_validate(json.loads(json.dumps(task.model_dump())))
    assert again == task
    if task.sink and again.sink:
        assert types(again.sink.options) == types(task.sink.options)


def test_a_query_of_a_catalog_from_before_there_were_standbys() -> None:
    stored = samples.a_query().model_dump(exclude={"standby", "sink_site"})
    assert DEFINITION.validate_python(stored) == samples.a_query()


@pytest.mark.parametrize(
    "asked", [{"batch": 0}, {"recovery_us": 0}, {"overhead": 1.01}, {"compress": "gzip"}]
)
def test_a_standby_cannot_ask_for_what_means_nothing(asked: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Standby(**asked)


def test_specs_are_frozen_and_closed() -> None:
    with pytest.raises(ValidationError):
        samples.HOT.condition = samples.HOT.condition
    with pytest.raises(ValidationError):
        Call(name="file", path="a.csv")  # type: ignore[call-arg]
