"""Finds the secrets within definitions and messages, at whatever depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from anabranch.plan.spec import Secret, Spec

T = TypeVar("T")


def secrets_in(value: Any) -> Iterator[Secret]:
    match value:
        case Secret():
            yield value
        case tuple() | list():
            for one in value:
                yield from secrets_in(one)
        case dict():
            yield from secrets_in(list(value.values()))
        case _:
            yield from secrets_in(list(_parts(value).values()))


def with_secrets(value: T, change: Callable[[Secret], Secret]) -> T:
    """The same value with each secret replaced; the value itself if it has none."""
    return _changed(value, change) if next(secrets_in(value), None) else value


def _changed(value: Any, change: Callable[[Secret], Secret]) -> Any:
    match value:
        case Secret():
            return change(value)
        case tuple() | list():
            return type(value)(_changed(one, change) for one in value)
        case dict():
            return {name: _changed(one, change) for name, one in value.items()}
        case Spec():
            return value.model_copy(update=_changed(_parts(value), change))
        case _ if parts := _parts(value):
            return replace(value, **_changed(parts, change))
    return value


def _parts(value: Any) -> dict[str, Any]:
    """The fields of a definition or message."""
    if isinstance(value, Spec):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return {}
