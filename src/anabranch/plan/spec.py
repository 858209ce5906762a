"""The base of everything that is stored in the catalog or sent to a site, and the small things
of which all is made: where a query may run, users' programs, secrets, names of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import ConfigError
from anabranch.hidden import MASK, hide


class Spec(BaseModel):
    """A frozen value that can be compared and survives a trip through JSON unchanged."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Column(Spec):
    """A column of a stream. `type` is a Spark SQL type, in Spark's own spelling once checked."""

    name: str
    type: str


Plain = str | int | float | bool


class Secret(Spec):
    """Stands in the place of an option's value, which is kept elsewhere under a name. Only the
    message to the site that needs it holds the value, and nothing that is kept or shown.

    A secret that was written into a statement has no name of a user's; `shown` is the text around
    it.
    """

    name: str = ""
    shown: str = ""
    value: str = Field(default="", repr=False)

    def __str__(self) -> str:
        return self.shown or f"secret('{self.name}')"

    __repr__ = __str__

    def opened(self) -> str:
        """The value, for the code that sends it outside. From then on it is masked wherever
        something is shown.
        """
        if not self.value:
            raise ConfigError(f"{self} is not known here")
        hide(self.value, MASK if self.shown else str(self))
        return self.value


class Call(Spec):
    """A source or sink with its options, as in `file(path = 'a.csv', speed = 'max')`."""

    name: str
    options: dict[str, Plain | Secret] = {}

    def opened(self) -> dict[str, Plain]:
        """The options with each secret replaced by its value."""
        return {name: opened(value) for name, value in self.options.items()}


def opened(value: Plain | Secret) -> Plain:
    return value.opened() if isinstance(value, Secret) else value


class Where(Spec):
    """The query's own node is at one of `at`, or anywhere if that is empty; nothing of the query is
    at `never`. Nodes that are made out of the query, such as a selection near its stream, may be
    elsewhere.
    """

    at: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        return len(self.at) == 1


class Program(Spec):
    """The class `class_name` in the text `code` of the file `path`; or, `pickled`, the class itself
    in base64, which was defined in `path`."""

    code: str
    path: str
    class_name: str
    pickled: bool = False
    on_error: Literal["stop", "skip", "restart"] = "stop"
    deterministic: bool = False
    stateless: bool = False
    every_us: int = 1_000_000
    """From one moment at which it is told the time to the next."""
    selectivity: float = 1.0

    @property
    def asks_the_world(self) -> bool:
        """Whether its results may differ for the same input, because it asks the world outside."""
        return self.stateless and not self.deterministic

    @property
    def remembers(self) -> bool:
        """Whether its results may depend on all earlier tuples."""
        return not (self.deterministic or self.stateless)


class Submission(Spec):
    """A pocket as its class describes it, with its code."""

    name: str
    query: str
    output: str
    site: str | None = None
    standby: str | None = None
    program: Program


T = TypeVar("T")


def secrets_in(value: Any) -> Iterator[Secret]:
    match value:
        case Secret():
            yield value
        case tuple() | list():
            for part in value:
                yield from secrets_in(part)
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


def _parts(value: Any) -> dict[str, object]:
    """The fields of a definition or message."""
    if isinstance(value, Spec):
        return {name: getattr(value, name) for name in type(value).model_fields}
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return {}


ORDERED = "r"
"""What the name of a run begins with that says when it was begun; others say nothing of that."""


def run_name(begun_us: int, unique: str) -> str:
    """A name for a run. A run that was begun later has the greater name."""
    return f"{ORDERED}{begun_us:016x}{unique}"[:32]
