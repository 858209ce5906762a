"""What is wrong with a configuration, in words an operator can act on, and the fields that
people write with a unit, or loosely.

A validator raises `problem(message, remedy)`; pydantic adds where it was; `config_error` makes one
ConfigError of it, so that no pydantic text reaches the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from anabranch.errors import ConfigError
from anabranch.units import bytes_per_second, duration_us

_OURS = "anabranch"
_MESSAGES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be a whole number",
    "list_type": "must be tables in double brackets, as in [[link]]",
    "missing": "is missing",
    "model_type": "must be a table",
    "string_too_short": "must not be empty",
    "string_type": "must be text in quotes",
}


def problem(message: str, remedy: str = "") -> PydanticCustomError:
    """An error for a validator to raise."""
    return PydanticCustomError(_OURS, "{message}", {"message": message, "remedy": remedy})


def did_you_mean(word: str, known: Iterable[str], *, title: str) -> str:
    """A remedy for the unknown `word`: the nearest known one, or all known ones after `title`."""
    names = list(known)
    near = [one for one in names if one.startswith(word)] or get_close_matches(word, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"{title}: {', '.join(names)}."


def config_error(error: ValidationError, name: str) -> ConfigError:
    """The first thing wrong, at its place in the file called `name`."""
    first = error.errors(include_url=False)[0]
    where = _dotted(first["loc"])
    message, remedy = _words(first)
    return ConfigError(message, place=f"{name}: {where}" if where else name, remedy=remedy)


def _words(detail: ErrorDetails) -> tuple[str, str]:
    context: dict[str, Any] = detail.get("ctx", {})
    if detail["type"] == _OURS:
        return context["message"], context["remedy"]
    return _MESSAGES.get(detail["type"], detail["msg"]).format(**context), ""


def _dotted(place: tuple[int | str, ...]) -> str:
    """`site.room1.isolation`; the entries of a list are counted from 1: `link 2.delay`."""
    text = ""
    for part in place:
        text += f" {part + 1}" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _from_text(parse: Callable[[str], float], example: str) -> BeforeValidator:
    def read(value: Any) -> float:
        if not isinstance(value, str):
            raise problem("must be text in quotes with a unit", f'Write it like "{example}".')
        try:
            return parse(value)
        except ConfigError as error:
            raise problem(error.message, error.remedy) from None

    return BeforeValidator(read)


def _read_size(value: Any) -> Any:
    """A number of bytes, from a number or a text such as `64MB`."""
    if not isinstance(value, str):
        return value
    try:
        return round(bytes_per_second(f"{value}/s"))
    except ConfigError:
        raise problem(f"{value!r} is not a size", "Write it like 64MB or 512KiB.") from None


def _read_conf(value: Any) -> Any:
    """Spark's settings, all of them as text.

    `{ spark.driver.memory = "1g" }` without quotes is nested tables to TOML but plainly means the
    setting, so it is taken as that.
    """
    if not isinstance(value, dict):
        return value
    settings = dict(_flat(value, ""))
    for key in settings:
        if not key.startswith("spark."):
            raise problem(f"{key!r} is no setting of Spark", f"Write 'spark.{key}'?")
    return settings


def _flat(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, _spark_text(value)


def _spark_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Microseconds = Annotated[int, _from_text(duration_us, "250ms")]
BytesPerSecond = Annotated[float, _from_text(bytes_per_second, "10MB/s")]
Bytes = Annotated[int, BeforeValidator(_read_size)]
SparkConf = Annotated[dict[str, str], BeforeValidator(_read_conf)]
