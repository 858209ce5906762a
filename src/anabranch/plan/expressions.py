"""Expressions as data: Spark SQL text with its columns taken out, so that they can be renamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from anabranch.plan.spec import Spec


class Use(Spec):
    """A column of the input called `input`; if that is "", a result of the query's aggregates."""

    input: str
    column: str


Naming = Callable[[Use], str]
"""How a column is spelled in Spark SQL."""


class Expr(Spec):
    """`pieces` of text around `uses` of columns: always one piece more than uses."""

    pieces: tuple[str, ...]
    uses: tuple[Use, ...] = ()

    @classmethod
    def of(cls, input: str, column: str) -> Self:
        """The expression that is the column itself."""
        return cls(pieces=("", ""), uses=(Use(input=input, column=column),))

    def sql(self, naming: Naming) -> str:
        first, *rest = self.pieces
        named = zip(self.uses, rest, strict=True)
        return first + "".join(naming(use) + piece for use, piece in named)

    def renamed(self, change: Callable[[Use], Use]) -> Expr:
        return Expr(pieces=self.pieces, uses=tuple(change(use) for use in self.uses))

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(use.input for use in self.uses)

    @property
    def column(self) -> Use | None:
        """The column that this is, if it is nothing more."""
        return self.uses[0] if len(self.uses) == 1 and not any(self.pieces) else None

    def __str__(self) -> str:
        """The text as people write it: `Sensor1.Temp > 50`."""
        return self.sql(shown)


@dataclass(frozen=True)
class TypeAnswer:
    """The Spark type of an expression, or why it has none."""

    type: str | None
    error: str = ""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def spelled(name: str) -> str:
    """The name as a person would write it: in quotes only where it needs them."""
    return name if name.isidentifier() else quoted(name)


def plain(use: Use) -> str:
    """The column in a table that holds one input's columns under their own names."""
    return quoted(use.column)


def flat(use: Use) -> str:
    """The column in a table that holds several inputs' columns, each named `input.column`."""
    return quoted(flat_name(use))


def flat_name(use: Use) -> str:
    return f"{use.input}.{use.column}"


def shown(use: Use) -> str:
    name = spelled(use.column)
    return f"{use.input}.{name}" if use.input else name
