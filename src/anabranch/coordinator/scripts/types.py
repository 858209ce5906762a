"""Types of columns and expressions, as a site's Spark says them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.language.expressions.types import NO_FUNCTION, Typer
from anabranch.language.source import Script, Span
from anabranch.link.messages import Analyse, CheckTypes
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.operators import Column


class Types(Typer, Protocol):
    """Who is asked for types while a script is checked."""

    def check_types(self, columns: tuple[Column, ...]) -> tuple[TypeAnswer, ...]:
        """Of each column its type in Spark's spelling, or why it has none."""


class SparkTypes:
    """Any site that is up knows."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites

    def check_types(self, columns: tuple[Column, ...]) -> tuple[TypeAnswer, ...]:
        return self._sites.any().send(CheckTypes(columns), PREPARE_S)

    def __call__(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]:
        return self._sites.any().send(Analyse(columns, expressions, aggregate), PREPARE_S)


def declared_types(
    script: Script, types: Types, declared: Iterable[tuple[str, Span]]
) -> tuple[str, ...]:
    """Types in Spark's spelling. Raises ScriptError for what is none."""
    written = list(declared)
    columns = tuple(Column(name=f"c{i}", type=type_) for i, (type_, _) in enumerate(written))
    found = []
    for (type_, span), answer in zip(written, types.check_types(columns), strict=True):
        if answer.type is None:
            raise script.error(
                span,
                f"{type_} cannot be the type of a column: {answer.error}",
                "Use a Spark SQL type such as DOUBLE, BIGINT, STRING or TIMESTAMP.",
            )
        found.append(answer.type)
    return tuple(found)


def is_function(types: Types, name: str) -> bool:
    """Of Spark's."""
    (answer,) = types((), (f"`{name}`()",))
    return not answer.error.startswith(NO_FUNCTION)
