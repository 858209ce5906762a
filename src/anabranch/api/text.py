"""Statements made of arguments: sources and sinks with their options, and which argument is to
blame when one is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Self

from anabranch.errors import ConfigError, ScriptError
from anabranch.language import Script, parse
from anabranch.plan.expressions import quoted
from anabranch.plan.spec import Secret

Value = str | int | float | bool | os.PathLike[str] | Secret
Duration = str | timedelta
_PLACE = re.compile(r".*:(\d+):(\d+)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]\w*")
_KEYWORDS = frozenset({"AND", "AS", "CREATE", "FROM", "INTO", "NOT", "OR", "SELECT", "WHERE"})


class Text:
    """A part of a statement. Text that comes from an argument bears the argument's name, such as
    `start(at)`.
    """

    def __init__(self, start: str = "") -> None:
        self._parts: list[tuple[str, str]] = [(start, "")] if start else []

    def add(self, text: str, argument: str = "") -> Self:
        self._parts.append((text, argument))
        return self

    def join(self, other: Text) -> Self:
        self._parts += other._parts
        return self

    def __str__(self) -> str:
        return "".join(text for text, _ in self._parts)

    def checked(self) -> str:
        """The text, if it is one statement: an argument must not bring a second one with it."""
        script = Script(str(self), "statement")
        try:
            statements = parse(script)
            if len(statements) > 1:
                raise script.error(statements[1].span, "this is another statement")
        except ScriptError as error:
            raise self.blamed(error) from None
        return script.text

    def blamed(self, error: ScriptError) -> ScriptError:
        """The same error, about the argument that stands at its place."""
        match = _PLACE.fullmatch(error.place)
        argument = self._at(int(match[1]), int(match[2])) if match else ""
        if not argument:
            return error
        return ScriptError(
            error.message, place=argument, remedy=error.remedy, excerpt=error.excerpt
        )

    def _at(self, line: int, column: int) -> str:
        """The argument at this place, or the one before it."""
        lines = str(self).split("\n")
        offset = sum(len(one) + 1 for one in lines[: line - 1]) + column - 1
        name, end = "", 0
        for text, argument in self._parts:
            end += len(text)
            name = argument or name
            if offset < end:
                break
        return name


def name(text: str, argument: str) -> str:
    """The name as statements write it."""
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{text!r} is no name", place=argument)
    if "`" in text:
        raise ConfigError(f"{text!r} is no name: it has a ` in it", place=argument)
    plain = _WORD.fullmatch(text) and text.upper() not in _KEYWORDS
    return text if plain else quoted(text)


def literal(value: Value, argument: str) -> str:
    """The value of an option as statements write it."""
    if isinstance(value, Secret):
        return f"secret({literal(value.name, argument)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ConfigError(f"{value} cannot be an option", place=argument)
        return repr(value)
    if not isinstance(value, str | os.PathLike):
        remedy = "It takes text, a number, True, False or a path."
        raise ConfigError(f"{value!r} cannot be an option", place=argument, remedy=remedy)
    text = os.fspath(value).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def duration(value: Duration) -> str:
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    return str(value)


def conjunction(conditions: Sequence[str], argument: str) -> Text:
    """The conditions joined by AND, in brackets, as one may hold an OR."""
    several = len(conditions) > 1
    texts = (f"({one})" if several and " OR " in one.upper() else one for one in conditions)
    return listed((Text().add(one, argument) for one in texts), " AND ")


def listed(texts: Iterable[Text], separator: str) -> Text:
    whole = Text()
    for index, text in enumerate(texts):
        whole.add(separator if index else "").join(text)
    return whole


@dataclass(frozen=True)
class SourceCall:
    """The origin of a stream or table; made by `source`."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkCall:
    """The destination of results; made by `sink`."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)
    site: str | None = None

    def on(self, site: str) -> SinkCall:
        """The same sink at a site of its own, instead of the query's:
        `sink("console").on("hall")`.
        """
        return replace(self, site=site)


def source(name: str, /, **options: Value) -> SourceCall:
    """A source such as `source("file", path="a.csv", speed="max")`. Options with other names than
    Python's go in as `**{"security.protocol": "SSL"}`."""
    return SourceCall(name, options)


def sink(name: str, /, **options: Value) -> SinkCall:
    """A sink such as `sink("jsonl", path="out.jsonl")`."""
    return SinkCall(name, options)


def secret(name: str) -> Secret:
    """The secret that CREATE SECRET keeps under this name, for an option:
    `password=secret("pg")`.
    """
    return Secret(name=name)


def call_text(call: SourceCall | SinkCall, argument: str) -> Text:
    text = Text().add(name(call.name, argument), argument).add("(")
    for index, (option, value) in enumerate(call.options.items()):
        place = f"{argument}: {option}"
        text.add(", " if index else "")
        text.add(f"{name(option, place)} = {literal(value, place)}", place)
    return text.add(")")
