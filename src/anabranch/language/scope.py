"""What the names in a query's expressions mean."""

from __future__ import annotations

from anabranch.errors import ScriptError
from anabranch.language.functions import check_functions
from anabranch.language.source import Script
from anabranch.language.statements import ColumnRef, Expression, Name
from anabranch.language.wording import did_you_mean_name
from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.operators import Column

EVENT_TIME = Column(name="_ts", type="BIGINT")
"""The only system column that expressions may use: event time in µs."""


class Scope:
    """The columns of one input, known as `alias`. Names match whatever their case, as in Spark."""

    def __init__(self, script: Script, source: StreamDef | QueryDef, alias: str) -> None:
        self.script = script
        self.source = source
        self.alias = alias
        self._columns = {column.name.lower(): column for column in (*source.columns, EVENT_TIME)}

    @property
    def columns(self) -> tuple[Column, ...]:
        """All that expressions may use: the input's own columns, then `_ts`."""
        return (*self.source.columns, EVENT_TIME)

    def check(self, expression: Expression) -> None:
        """Raise if `expression` is not one over this scope's columns alone."""
        check_functions(self.script, expression, self._columns.keys())
        for ref in expression.columns:
            self.resolve(ref)

    def resolve(self, ref: ColumnRef) -> tuple[Column, int]:
        """The column that `ref` means, and how many of its parts name it; the rest are fields.

        As in Spark, `a.b` is column b of input a before it is field b of column a.
        """
        first, *rest = ref.parts
        if rest and self.is_qualifier(first) and (column := self._find(rest[0])):
            return column, 2
        if column := self._find(first):
            return column, 1
        if not rest:
            raise self._unknown_column(first)
        self.check_qualifier(first, rest[0])
        raise self._unknown_column(rest[0])

    def is_qualifier(self, name: Name) -> bool:
        return name.text.lower() == self.alias.lower()

    def check_qualifier(self, name: Name, after: Name | None = None) -> None:
        """Raise unless `name` is what the query calls its input. `after` follows its dot."""
        if self.is_qualifier(name):
            return
        written = after.text if after else "*"
        if name.text.lower() == self.source.name.lower():
            message = f"stream {self.source.name} is called {self.alias} here"
            raise self.script.error(name.span, message, f"Write {self.alias}.{written}.")
        names = [self.alias] + ([column.name for column in self.columns] if after else [])
        remedy = did_you_mean_name(name.text, names) or f"This query reads {self.alias} only."
        what = "stream or column" if after else "stream"
        raise self.script.error(name.span, f"unknown {what} '{name.text}'", remedy)

    def _find(self, name: Name) -> Column | None:
        return self._columns.get(name.text.lower())

    def _unknown_column(self, name: Name) -> ScriptError:
        low = name.text.lower()
        if low in ("_pos", "_born"):
            message = f"'{name.text}' is not for queries"
            return self.script.error(name.span, message, "Use _ts, the event time in µs.")
        message = f"unknown column '{name.text}' of stream {self.source.name}"
        if isinstance(self.source, StreamDef) and (self.source.timestamp or "").lower() == low:
            message = f"'{name.text}' is the TIMESTAMP of stream {self.source.name}, not a column"
            return self.script.error(name.span, message, "Use _ts, the event time in µs.")
        names = [column.name for column in self.source.columns]
        return self.script.error(name.span, message, did_you_mean_name(name.text, names))
