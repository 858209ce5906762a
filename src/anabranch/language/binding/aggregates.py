"""Queries over windows of one stream: GROUP BY, aggregates and HAVING."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import ScriptError
from anabranch.language.binding.columns import bind_keys, outputs, place_keys, window_bound
from anabranch.language.binding.from_clause import Lookup, panes
from anabranch.language.expressions.aggregates import (
    BoundCall,
    FoundCall,
    asked,
    bind_call,
    find_calls,
    refused,
    supported,
    typed,
)
from anabranch.language.expressions.conjuncts import bind_conditions, conjuncts
from anabranch.language.expressions.functions import check_functions
from anabranch.language.expressions.scope import Placed, Scope, elements, expr
from anabranch.language.expressions.types import Asked, Typer, ask
from anabranch.language.grammar.lexer import Token, collapsed
from anabranch.language.grammar.statements import ColumnRef, Expression, Select, StarItem
from anabranch.language.grammar.translations import OVER
from anabranch.language.source import Span
from anabranch.plan.catalog import AggregateDef
from anabranch.plan.expressions import Expr, Use, plain
from anabranch.plan.operators import (
    Aggregate,
    AggregateCall,
    Column,
    Condition,
    Item,
    Operator,
    Projection,
    Selection,
)
from anabranch.plan.windows import WINDOW_END, WINDOW_START, Panes, RowPanes

_OWN_QUERY = "a query of its own and aggregate that."


def bind_aggregates(
    scope: Scope, select: Select, lookup: Lookup, typer: Typer, evidence: Span
) -> tuple[Operator, ...]:
    """The Selections of the WHERE, the Aggregate, the Selections of the HAVING, and the Projection.

    `evidence` is the first place in the text that makes the query an aggregate.
    """
    return _Binder(scope, select, lookup, _checked_panes(scope, select, evidence)).bind(typer)


def _checked_panes(scope: Scope, select: Select, evidence: Span) -> Panes:
    if len(scope.sources) > 1:
        message = "aggregates over several inputs are not supported"
        raise scope.script.error(evidence, message, f"Make the join {_OWN_QUERY}")
    source = scope.sources[0]
    windows = panes(source)
    if windows is None:
        name = source.item.name.text
        over = next(
            (
                token
                for item in select.items
                if not isinstance(item, StarItem)
                for token in item.expression.tokens
                if token.key == "OVER"
            ),
            None,
        )
        if over:
            raise scope.script.error(over.span, "OVER is not supported", OVER)
        remedy = (
            f"Write {name}[10s] in FROM, or {name}[1h SLIDE 10m]. A total of everything so far is"
            " for a pocket: docs/pockets.md has one to copy."
        )
        raise scope.script.error(evidence, "aggregates and GROUP BY need a window", remedy)
    if select.masters:
        raise scope.script.error(
            select.masters[0].span,
            "MASTER is not for aggregates",
            "Leave it out: their windows end by themselves.",
        )
    if select.where and isinstance(windows, RowPanes):
        message = "WHERE is not supported where a window counts rows"
        raise scope.script.error(select.where.span, message, f"Make the selection {_OWN_QUERY}")
    return windows


class _Binder:
    def __init__(self, scope: Scope, select: Select, lookup: Lookup, panes: Panes) -> None:
        self._scope = scope
        self._script = scope.script
        self._select = select
        self._lookup = lookup
        self._panes = panes
        self._calls: dict[BoundCall, Span] = {}
        """In the order of their names `_agg0`, `_agg1`, …"""
        for expression in select.group:
            self._check_plain(expression, "GROUP BY")
        self._keys = bind_keys(scope, select)

    def _is_own(self, name: str) -> bool:
        return isinstance(self._lookup(name), AggregateDef)

    def _check_plain(self, expression: Expression, clause: str) -> None:
        remedy = "Use HAVING." if clause == "WHERE" else ""
        message = f"aggregates cannot stand in {clause}"
        check = refused(self._script, self._is_own, message, remedy)
        check_functions(self._script, expression, self._scope.columns_in(expression), check)

    def bind(self, typer: Typer) -> tuple[Operator, ...]:
        select = self._select
        where: list[tuple[Condition, Span]] = []
        if select.where:
            self._check_plain(select.where, "WHERE")
            where = bind_conditions(self._scope, select.where)
        for item in select.items:
            if isinstance(item, StarItem):
                message = "'*' cannot be used with aggregates"
                raise self._script.error(item.span, message, "Name the columns of GROUP BY.")
        columns = outputs(self._scope, select.items, self._bind)
        having = self._having()
        aggregate = self._aggregate(typer, where)
        questions = [Asked(one.expr, one.span) for one in columns] + having
        types = ask(
            self._script, typer, self._columns(aggregate), plain, questions, written=self._written()
        )
        items = tuple(
            Item(expr=one.expr, name=one.name.text, type=type_)
            for one, type_ in zip(columns, types, strict=False)
        )
        return (
            *(Selection(condition=condition) for condition, _ in where),
            aggregate,
            *(Selection(condition=Condition(expr=one.expr)) for one in having),
            Projection(items=items),
        )

    def _having(self) -> list[Asked]:
        having = self._select.having
        if having is None:
            return []
        placed = self._placed(having)
        return [
            Asked(expr(self._script, part.tokens, placed), part.span, "HAVING")
            for part in conjuncts(having)
        ]

    def _bind(self, expression: Expression) -> Expr:
        return expr(self._script, expression.tokens, self._placed(expression))

    def _placed(self, expression: Expression) -> list[Placed]:
        """All parts of `expression` that the aggregate computes. Raises if there is more in it."""
        names = self._scope.columns_in(expression)
        check_functions(self._script, expression, names, supported(self._script, self._is_own))
        inner = find_calls(expression.tokens, self._is_own)
        calls = [self._place_call(call, expression) for call in inner]
        outside = [
            ref
            for ref in expression.columns
            if not any(call.span.holds(ref.span) for call in calls)
        ]
        bounds = [Placed(ref.span, use) for ref in outside if (use := window_bound(ref))]
        rest = [ref for ref in outside if not window_bound(ref)]
        columns = self._scope.placed(expression, rest)
        parts = elements(self._script, expression.tokens, [*calls, *bounds, *columns])
        keys = place_keys(parts, self._keys)
        for ref, column in zip(rest, columns, strict=True):
            if not any(key.span.holds(column.span) for key in keys):
                raise self._not_grouped(ref, expression)
        return [*calls, *bounds, *keys]

    def _not_grouped(self, ref: ColumnRef, expression: Expression) -> ScriptError:
        name = self._script.slice(ref.span)
        message = f"{name} must be in GROUP BY or inside an aggregate"
        text = collapsed(self._script, expression.tokens)
        written = [key.text for key in self._keys if key.text in text and name in key.text]
        remedy = f"Add {name} to GROUP BY, or write MAX({name})."
        if written:
            remedy = f"Put brackets around what is in GROUP BY: ({written[0]})."
        return self._script.error(ref.span, message, remedy)

    def _place_call(self, call: FoundCall, expression: Expression) -> Placed:
        self._check_behind(call, expression.tokens)
        refs = [ref for ref in expression.columns if call.span.holds(ref.span)]
        own = self._lookup(call.name.text)
        bound = bind_call(
            self._script,
            call,
            own if isinstance(own, AggregateDef) else None,
            self._is_own,
            self._scope.placed(expression, refs),
        )
        self._calls.setdefault(bound, call.span)
        return Placed(call.span, Use(input="", column=f"_agg{list(self._calls).index(bound)}"))

    def _check_behind(self, call: FoundCall, tokens: Sequence[Token]) -> None:
        after = next((one for one in tokens if one.span.start >= call.span.end), None)
        if after is not None and after.key == "FILTER":
            remedy = "Use CASE: SUM(CASE WHEN … THEN … END)."
            raise self._script.error(after.span, "FILTER is not supported", remedy)

    def _aggregate(self, typer: Typer, where: list[tuple[Condition, Span]]) -> Aggregate:
        keys = [Asked(key.expr, key.span) for key in self._keys]
        conditions = [Asked(condition.expr, span, "WHERE") for condition, span in where]
        calls = [(call, span, asked(call, span)) for call, span in self._calls.items()]
        questions = [*keys, *conditions, *(one for *_, part in calls for one in part)]
        answers = ask(self._script, typer, self._scope.columns, plain, questions, aggregate=True)
        types = iter(answers)
        key_items = tuple(
            Item(expr=key.expr, name=key.name, type=next(types)) for key in self._keys
        )
        for _ in conditions:
            next(types)
        bound: list[AggregateCall] = []
        for index, (call, span, part) in enumerate(calls):
            given = [next(types) for _ in part]
            bound.append(typed(self._script, call, span, f"_agg{index}", given))
        return Aggregate(panes=self._panes, keys=key_items, calls=tuple(bound))

    def _columns(self, aggregate: Aggregate) -> tuple[Column, ...]:
        """The columns that the operators after `aggregate` see."""
        keys = (Column(name=key.name, type=key.type) for key in aggregate.keys)
        calls = (Column(name=call.name, type=call.type) for call in aggregate.calls)
        bounds = (Column(name=n, type=self._panes.bounds) for n in (WINDOW_START, WINDOW_END))
        return (*keys, *calls, *bounds)

    def _written(self) -> dict[str, str]:
        """Maps the plan's own column names to what people wrote for them."""
        calls = {
            f"_agg{index}": " ".join(self._script.slice(span).split())
            for index, span in enumerate(self._calls.values())
        }
        keys = {key.name: key.text for key in self._keys if key.name.startswith("_")}
        return calls | keys
