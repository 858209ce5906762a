"""Sources and sinks with their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.api.text import Text, Value, literal
from anabranch.api.text import name as written
from anabranch.plan.spec import Secret


@dataclass(frozen=True)
class Source:
    """The origin of a stream or table; made by `source`."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Sink:
    """The destination of results; made by `sink`."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)
    site: str | None = None

    def on(self, site: str) -> Sink:
        """The same sink at a site of its own, instead of the query's:
        `sink("console").on("hall")`.
        """
        return replace(self, site=site)


def source(name: str, /, **options: Value) -> Source:
    """A source such as `source("file", path="a.csv", speed="max")`. Options with other names than
    Python's go in as `**{"security.protocol": "SSL"}`."""
    return Source(name, options)


def sink(name: str, /, **options: Value) -> Sink:
    """A sink such as `sink("jsonl", path="out.jsonl")`."""
    return Sink(name, options)


def secret(name: str) -> Secret:
    """The secret that CREATE SECRET keeps under this name, for an option:
    `password=secret("pg")`.
    """
    return Secret(name=name)


def call_text(call: Source | Sink, argument: str) -> Text:
    text = Text().add(written(call.name, argument), argument).add("(")
    for index, (option, value) in enumerate(call.options.items()):
        place = f"{argument}: {option}"
        text.add(", " if index else "")
        text.add(f"{written(option, place)} = {literal(value, place)}", place)
    return text.add(")")
