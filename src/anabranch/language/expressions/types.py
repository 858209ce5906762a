"""The types of expressions, asked of something that knows Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.language.source import Script, Span
from anabranch.plan.expressions import Expr, Naming, TypeAnswer, quoted, shown
from anabranch.plan.operators import Column

NO_FUNCTION = "there is no function"
"""How the error begins of an expression that calls what Spark does not know."""
UNKNOWN = "unknown"
"""A type that nobody can tell yet; it fits everywhere."""


class Typer(Protocol):
    """Answers for each expression over `columns`, in order.

    Columns are called as they are in the expressions. Only with `aggregate` may these be
    aggregates, such as `avg(Temp)`.
    """

    def __call__(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]: ...


@dataclass(frozen=True)
class Asked:
    """An expression whose type is asked for; `clause` is set if it must be a condition."""

    expr: Expr
    span: Span
    clause: str = ""
    before: str = ""
    """What goes around it in the question, as `avg(` does."""
    after: str = ""


def ask(
    script: Script,
    typer: Typer,
    columns: tuple[Column, ...],
    naming: Naming,
    asked: Sequence[Asked],
    *,
    aggregate: bool = False,
    written: Mapping[str, str] | None = None,
) -> list[str]:
    """The types of what is asked. Raises if one has none, or is no condition where it must be.

    `written` says how people know columns that have a name of the plan's.
    """
    sqls = tuple(one.before + one.expr.sql(naming) + one.after for one in asked)
    answers = typer(columns, sqls, aggregate=aggregate)
    types = []
    for answer, one in zip(answers, asked, strict=True):
        if answer.type is None:
            raise script.error(one.span, _readable(answer.error, one.expr, naming, written or {}))
        if one.clause and answer.type.lower() not in ("boolean", UNKNOWN):
            message = f"{one.clause} needs a condition (boolean), this is {answer.type.upper()}"
            raise script.error(one.span, message, "Compare it with something, as in x > 0.")
        types.append(answer.type)
    return types


def _readable(message: str, expr: Expr, naming: Naming, written: Mapping[str, str]) -> str:
    """`message` on one line, with columns as people write them."""
    for use in expr.uses:
        known_as = written.get(use.column) if not use.input else None
        if known_as:
            message = message.replace(quoted(use.column), known_as).replace(use.column, known_as)
        elif naming(use) != quoted(use.column):
            message = message.replace(naming(use), shown(use))
        elif use.column.isidentifier():
            message = message.replace(quoted(use.column), use.column)
    return " ".join(message.split())
