"""What is wrong with a configuration, in words an operator can act on.

A validator raises `problem(message, remedy)`; pydantic adds where it was; `config_error` makes one
ConfigError of it, so that no pydantic text reaches the user.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from anabranch.errors import ConfigError

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
