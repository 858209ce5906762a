"""Works out types without Spark, for a check that does not wait for Spark to start."""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from anabranch.language.expressions.types import NO_FUNCTION, UNKNOWN
from anabranch.language.grammar.translations import function_like
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.operators import Column

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
            found = exp.DataType.build(text, dialect=_SPARK)
        except SqlglotError:
            return TypeAnswer(None, "it is no type of Spark SQL")
        if found.this.name not in _TYPES:
            return TypeAnswer(None, "it is no type of Spark SQL")
        return TypeAnswer(_spelt(found))

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
    found = typed.selects[0].type
    if found is None or found.this.name not in _TYPES:
        return UNKNOWN
    return _spelt(found)


def _spelt(found: exp.DataType) -> str:
    return found.sql(dialect=_SPARK).lower()
