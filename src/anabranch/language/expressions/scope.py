"""What the names in a query's expressions mean, and expressions as the plan holds them: the text
as written, with the columns taken out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.errors import ScriptError
from anabranch.language.grammar.lexer import Token, TokenKind
from anabranch.language.grammar.statements import ColumnRef, Expression, FromItem, Name
from anabranch.language.source import Script, Span, did_you_mean_name, listed
from anabranch.plan.catalog import Relation, StreamDef, TableDef
from anabranch.plan.expressions import Expr, Naming, Use, flat, flat_name, plain, quoted
from anabranch.plan.operators import Column
from anabranch.stream.batch import BORN, POSITION
from anabranch.stream.batch import EVENT_TIME as TIME_COLUMN


@dataclass(frozen=True)
class Placed:
    """The tokens of `span` mean the column `use`; `after` is the text that must follow it."""

    span: Span
    use: Use
    after: str = ""


@dataclass(frozen=True)
class Element:
    """A token's text, or a column that one or more tokens mean; `gap` if space comes before it.

    Two expressions say the same if the `key`s of their elements do.
    """

    text: str | Placed
    key: str | Use
    span: Span
    gap: bool


def elements(script: Script, tokens: Sequence[Token], placed: Iterable[Placed]) -> list[Element]:
    at = {one.span.start: one for one in placed}
    elements: list[Element] = []
    end = tokens[0].span.start if tokens else 0
    for token in tokens:
        if token.span.start < end:
            continue
        gap = token.span.start > end
        if column := at.get(token.span.start):
            elements.append(Element(column, column.use, column.span, gap))
        else:
            text = token.text if token.kind is TokenKind.WORD else script.slice(token.span)
            elements.append(Element(text, token.key or text, token.span, gap))
        end = elements[-1].span.end
    return elements


def expr(script: Script, tokens: Sequence[Token], placed: Iterable[Placed]) -> Expr:
    """`tokens` as written but for comments, and with single spaces, around their columns."""
    pieces, uses = [""], []
    for element in elements(script, tokens, placed):
        pieces[-1] += " " if element.gap else ""
        if isinstance(element.text, Placed):
            uses.append(element.text.use)
            pieces.append(element.text.after)
        else:
            pieces[-1] += element.text
    return Expr(pieces=tuple(pieces), uses=tuple(uses))


EVENT_TIME = Column(name=TIME_COLUMN, type="BIGINT")
"""The only system column that expressions may use: event time in µs."""

_FEW = 12
"""Columns that an error lists."""


@dataclass(frozen=True)
class QueryInput:
    """One input of a query, under the name that the query gives it."""

    definition: Relation
    alias: str
    item: FromItem

    @property
    def is_table(self) -> bool:
        return isinstance(self.definition, TableDef)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns that expressions may use: its own, then `_ts`, which a table does not
        have.
        """
        own = self.definition.columns
        return own if self.is_table else (*own, EVENT_TIME)

    def find(self, name: str) -> Column | None:
        return next((one for one in self.columns if one.name.lower() == name.lower()), None)

    def __str__(self) -> str:
        return f"{'table' if self.is_table else 'stream'} {self.definition.name}"


@dataclass(frozen=True)
class ResolvedColumn:
    """The column that the first `parts` of a dotted name mean; the others are fields."""

    use: Use
    type: str
    parts: int


class Scope:
    """The columns of a query's inputs. Names match whatever their case, as in Spark."""

    def __init__(self, script: Script, sources: Sequence[QueryInput]) -> None:
        self.script = script
        self.sources = sources

    @property
    def naming(self) -> Naming:
        """The names of columns in expressions that Spark is asked to type."""
        return plain if len(self.sources) == 1 else flat

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns that expressions may use, under the names that `naming` gives them."""
        if len(self.sources) == 1:
            return self.sources[0].columns
        return tuple(
            Column(name=flat_name(Use(input=source.alias, column=one.name)), type=one.type)
            for source in self.sources
            for one in source.columns
        )

    @property
    def names(self) -> frozenset[str]:
        """The lower-case names that, standing alone, mean a column."""
        return frozenset(one.name.lower() for source in self.sources for one in source.columns)

    def columns_in(self, expression: Expression) -> frozenset[str]:
        """The lower-case names that mean a column here, not a function such as current_date.

        Where columns keep their names, Spark finds them; elsewhere only those that were taken out
        of the text do.
        """
        if len(self.sources) == 1 and not self.sources[0].item.window:
            return self.names
        return self.names & {ref.parts[0].text.lower() for ref in expression.columns}

    def expr(self, expression: Expression) -> Expr:
        return expr(self.script, expression.tokens, self.placed(expression))

    def placed(
        self, expression: Expression, refs: Iterable[ColumnRef] | None = None
    ) -> list[Placed]:
        """The places of all columns in `expression`, or of `refs`. Raises if one is unknown."""
        tokens = expression.tokens
        fields = _unnamed_fields(tokens)
        placed = []
        for ref in expression.columns if refs is None else refs:
            column = self.resolve(ref)
            span = ref.parts[0].span.to(ref.parts[column.parts - 1].span)
            is_field = span.start in fields and _ends_argument(tokens, span.end)
            after = f" AS {quoted(column.use.column)}" if is_field else ""
            placed.append(Placed(span, column.use, after))
        return placed

    def resolve(self, ref: ColumnRef) -> ResolvedColumn:
        """The column that `ref` means.

        As in Spark, `a.b` is column b of input a before it is field b of column a.
        """
        first, *rest = ref.parts
        source = self.called(first.text)
        if rest and source and (column := source.find(rest[0].text)):
            return ResolvedColumn(_use(source, column), column.type, 2)
        having = [(one, column) for one in self.sources if (column := one.find(first.text))]
        if len(having) > 1:
            raise self._ambiguous(first, [_use(*one) for one in having])
        if having:
            return ResolvedColumn(_use(*having[0]), having[0][1].type, 1)
        if not rest:
            raise self._unknown_column(first, self.sources)
        raise self._unknown_column(rest[0], [self.qualifier(first, rest[0])])

    def called(self, alias: str) -> QueryInput | None:
        return next((one for one in self.sources if one.alias.lower() == alias.lower()), None)

    def qualifier(self, name: Name, after: Name | None = None) -> QueryInput:
        """The input that the query calls `name`; `after` is what follows its dot, if not a `*`."""
        if source := self.called(name.text):
            return source
        renamed = [one for one in self.sources if one.definition.name.lower() == name.text.lower()]
        if renamed:
            written = [f"{one.alias}.{after.text if after else '*'}" for one in renamed]
            called = listed([one.alias for one in renamed], "and")
            message = f"{renamed[0]} is called {called} here"
            raise self.script.error(name.span, message, f"Write {listed(written, 'or')}.")
        aliases = [one.alias for one in self.sources]
        columns = [one.name for source in self.sources for one in source.columns] if after else []
        remedy = did_you_mean_name(name.text, [*aliases, *columns])
        remedy = remedy or f"This query reads {listed(aliases, 'and')} only."
        what = "stream or column" if after else "stream"
        raise self.script.error(name.span, f"unknown {what} '{name.text}'", remedy)

    def _ambiguous(self, name: Name, uses: Sequence[Use]) -> ScriptError:
        written = [f"{use.input}.{use.column}" for use in uses]
        message = f"'{name.text}' is ambiguous: several inputs have it"
        return self.script.error(name.span, message, f"Write {listed(written, 'or')}.")

    def _unknown_column(self, name: Name, among: Sequence[QueryInput]) -> ScriptError:
        low = name.text.lower()
        event_time = "Use _ts, the event time in µs."
        if low in (POSITION, BORN):
            return self.script.error(name.span, f"'{name.text}' is not for queries", event_time)
        if low == EVENT_TIME.name:
            return self.script.error(name.span, "a table has no event time")
        for source in among:
            stream = source.definition
            if isinstance(stream, StreamDef) and (stream.timestamp or "").lower() == low:
                message = f"'{name.text}' is the TIMESTAMP of {source}, not a column"
                return self.script.error(name.span, message, event_time)
        names = [one.name for source in among for one in source.definition.columns]
        where = str(among[0]) if len(among) == 1 else "any input"
        message = f"unknown column '{name.text}' of {where}"
        remedy = did_you_mean_name(name.text, names)
        if not remedy and 0 < len(names) <= _FEW:
            remedy = f"There is {listed(names, 'and')}."
        return self.script.error(name.span, message, remedy)


def _use(source: QueryInput, column: Column) -> Use:
    return Use(input=source.alias, column=column.name)


def _unnamed_fields(tokens: Sequence[Token]) -> set[int]:
    """The places where arguments of `struct(…)` start. If one is a column, Spark would name the
    field after what the plan calls the column.
    """
    starts: set[int] = set()
    opened: list[str] = []
    for index, token in enumerate(tokens[:-1]):
        if token.key in ("(", "["):
            opened.append(tokens[index - 1].key if index and token.key == "(" else "")
        elif token.key in (")", "]"):
            opened.pop()
        if token.key in ("(", ",") and opened and opened[-1] == "STRUCT":
            starts.add(tokens[index + 1].span.start)
    return starts


def _ends_argument(tokens: Sequence[Token], end: int) -> bool:
    """Whether a comma or a closing bracket follows the place `end`."""
    after = next((token for token in tokens if token.span.start >= end), None)
    return after is not None and after.key in (",", ")")
