"""The types of expressions: as Spark says them, or as far as they can be told without it, for a
check that does not wait.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from anabranch.language.grammar.translations import function_like
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
    questions: Sequence[Asked],
    *,
    aggregate: bool = False,
    written: Mapping[str, str] | None = None,
) -> list[str]:
    """The types of what is asked. Raises if one has none, or is no condition where it must be.

    `written` says how people know columns that have a name of the plan's.
    """
    sqls = tuple(one.before + one.expr.sql(naming) + one.after for one in questions)
    answers = typer(columns, sqls, aggregate=aggregate)
    types = []
    for answer, question in zip(answers, questions, strict=True):
        if answer.type is None:
            raise script.error(
                question.span, _readable(answer.error, question.expr, naming, written or {})
            )
        if question.clause and answer.type.lower() not in ("boolean", UNKNOWN):
            message = (
                f"{question.clause} needs a condition (boolean), this is {answer.type.upper()}"
            )
            raise script.error(question.span, message, "Compare it with something, as in x > 0.")
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


_SPARK = "spark"
_NAME_ALONE = re.compile(r"`[^`]+`\(\)")
_TYPES = frozenset(
    {
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "DECIMAL",
        "TEXT",
        "VARCHAR",
        "BINARY",
        "VARBINARY",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMPLTZ",
        "TIMESTAMPTZ",
        "TIMESTAMPNTZ",
        "ARRAY",
        "MAP",
        "STRUCT",
        "INTERVAL",
        "VARIANT",
    }
)


class SketchTypes:
    """Types that it cannot work out are UNKNOWN, which fits everywhere. `functions` are the names
    that Spark knows.
    """

    def __init__(self, functions: Collection[str]) -> None:
        self._functions = frozenset(name.lower() for name in functions)

    def check_types(self, columns: tuple[Column, ...]) -> tuple[TypeAnswer, ...]:
        return tuple(self._declared(column.type) for column in columns)

    def _declared(self, text: str) -> TypeAnswer:
        try:
            type_ = exp.DataType.build(text, dialect=_SPARK)
        except SqlglotError:
            return TypeAnswer(None, "it is no type of Spark SQL")
        if type_.this.name not in _TYPES:
            return TypeAnswer(None, "it is no type of Spark SQL")
        return TypeAnswer(_spelt(type_))

    def __call__(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]:
        types = {f"`{column.name}`": column.type for column in columns}
        return tuple(self._typed(types, one) for one in expressions)

    def _typed(self, types: dict[str, str], text: str) -> TypeAnswer:
        if text in types:
            return TypeAnswer(types[text])
        try:
            tree = parse_one(text, dialect=_SPARK)
        except SqlglotError:
            return TypeAnswer(UNKNOWN)
        for call in tree.find_all(exp.Anonymous):
            if call.name.lower() not in self._functions:
                like = function_like(call.name, self._functions)
                text = f"there is no function {call.name}{'. ' if like else ''}{like}"
                return TypeAnswer(None, text)
        return TypeAnswer(_annotated(tree, types))


class NoTypes:
    """Takes every type as right and every expression as UNKNOWN: for a check of names alone."""

    def check_types(self, columns: tuple[Column, ...]) -> tuple[TypeAnswer, ...]:
        return tuple(TypeAnswer(column.type) for column in columns)

    def __call__(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]:
        types = {f"`{column.name}`": column.type for column in columns}
        return tuple(self._answer(types, one) for one in expressions)

    def _answer(self, types: dict[str, str], text: str) -> TypeAnswer:
        if _NAME_ALONE.fullmatch(text):  # asked whether Spark has such a function
            return TypeAnswer(None, NO_FUNCTION)
        return TypeAnswer(types.get(text, UNKNOWN))


def _annotated(tree: exp.Expr, types: dict[str, str]) -> str:
    known = {name.strip("`"): type_ for name, type_ in types.items() if type_ != UNKNOWN}
    for column in tree.find_all(exp.Column):
        if column.table:  # a field of a struct
            return UNKNOWN
        column.set("table", exp.to_identifier("t"))
    query = exp.select(tree).from_("t")
    try:
        typed = annotate_types(query, schema={"t": known}, dialect=_SPARK)
    except (SqlglotError, ValueError, KeyError, RecursionError):
        return UNKNOWN
    kind = typed.selects[0].type
    if kind is None or kind.this.name not in _TYPES:
        return UNKNOWN
    return _spelt(kind)


def _spelt(type_: exp.DataType) -> str:
    return type_.sql(dialect=_SPARK).lower()
