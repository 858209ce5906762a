"""Statements → definitions: what the names mean, and the operators that compute the result.

Pure: what exists is asked through `lookup`, types through `typer`. Whether a name is taken or a
site exists is not asked here; statements keep the spans to point at.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.language.aggregates import IsOwn, find_calls, refused, supported
from anabranch.language.bind_aggregates import bind_aggregates
from anabranch.language.bind_from import Lookup, bind_from, masters, windows
from anabranch.language.conjuncts import bind_conditions
from anabranch.language.functions import check_functions
from anabranch.language.outputs import outputs
from anabranch.language.scope import Scope
from anabranch.language.source import Script, Span
from anabranch.language.statements import (
    CallNode,
    CreateQuery,
    Expression,
    Select,
    SelectItem,
    StandbyNode,
)
from anabranch.language.types import Asked, Typer, ask
from anabranch.plan.catalog import AggregateDef, QueryDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.graph import Node, Port
from anabranch.plan.operators import (
    Call,
    Column,
    Condition,
    Item,
    Join,
    Operator,
    Projection,
    Selection,
)
from anabranch.plan.protection import Standby
from anabranch.stream.names import POSITION


def bind_query(
    stmt: CreateQuery,
    script: Script,
    lookup: Lookup,
    names: Iterable[str],
    typer: Typer,
    *,
    base: str,
) -> QueryDef:
    """The query that `stmt` declares. Without AT it is where its first stream is.

    `names` are those that `lookup` knows, for suggestions. `typer` is called once, with the inputs'
    columns and `_ts`, for the items and last the conditions; for aggregates twice.
    """
    scope = bind_from(script, stmt.select.sources, lookup, names)
    first = next(source for source in scope.sources if not source.is_table)
    site = stmt.site or first.definition.site
    operators = _operators(scope, stmt.select, lookup, typer)
    projection = operators[-1]
    assert isinstance(projection, Projection)
    columns = tuple(Column(name=item.name, type=item.type) for item in projection.items)
    node = Node(
        name=stmt.name,
        site=site,
        inputs=tuple(Port(stream=one.definition.name, alias=one.alias) for one in scope.sources),
        operators=operators,
        columns=columns,
    )
    return QueryDef(
        name=stmt.name,
        columns=columns,
        site=site,
        written=node,
        nodes=(node,),
        sink=bind_call(stmt.sink) if stmt.sink else None,
        sink_site=stmt.sink_site.text if stmt.sink_site else None,
        standby=_bind_standby(script, stmt.standby, site) if stmt.standby else None,
        text=stmt.text,
        base=base,
    )


def bind_call(node: CallNode) -> Call:
    return Call(name=node.name, options=node.values)


def _bind_standby(script: Script, node: StandbyNode, site: str) -> Standby:
    if node.on and node.on.text == site:
        raise script.error(
            node.on.span,
            f"the query itself runs at {site}, and its standby must be elsewhere",
            "Name another site, or leave ON out.",
        )
    return node.asked


def _operators(scope: Scope, select: Select, lookup: Lookup, typer: Typer) -> tuple[Operator, ...]:
    def is_own(name: str) -> bool:
        return isinstance(lookup(name), AggregateDef)

    evidence = _aggregated(select, is_own)
    if evidence:
        return bind_aggregates(scope, select, lookup, typer, evidence)
    if select.having:
        raise scope.script.error(select.having.span, "HAVING needs an aggregate", "Use WHERE.")
    return _plain_operators(scope, select, typer, is_own)


def _aggregated(select: Select, is_own: IsOwn) -> Span | None:
    """The first place that makes the query an aggregate."""
    items = [item.expression for item in select.items if isinstance(item, SelectItem)]
    for expression in [*items, *([select.having] if select.having else [])]:
        if calls := find_calls(expression.tokens, is_own):
            return calls[0].name.span
    return select.group[0].span if select.group else None


def _plain_operators(
    scope: Scope, select: Select, typer: Typer, is_own: IsOwn
) -> tuple[Operator, ...]:
    """One selection after the other, or one Join, and a Projection."""
    script = scope.script

    def bind(expression: Expression) -> Expr:
        check_functions(script, expression, scope.columns_in(expression), supported(script, is_own))
        return scope.expr(expression)

    # First what is wrong with FROM: names would be looked for in vain.
    head = _join(scope, select)
    found = outputs(scope, select.items, bind)
    conditions: list[tuple[Condition, Span]] = []
    if select.where:
        message = "aggregates cannot stand in WHERE"
        remedy = "Make the aggregate a query of its own, over a window, and read that."
        check = refused(script, is_own, message, remedy)
        check_functions(script, select.where, scope.columns_in(select.where), check)
        conditions = bind_conditions(scope, select.where)
    questions = [Asked(one.expr, one.span) for one in found]
    questions += [Asked(condition.expr, span, "WHERE") for condition, span in conditions]
    types = ask(script, typer, scope.columns, scope.naming, questions)
    items = tuple(
        Item(expr=one.expr, name=one.name.text, type=type_)
        for one, type_ in zip(found, types, strict=False)
    )
    bound = tuple(condition for condition, _ in conditions)
    if head:
        return head.model_copy(update={"conditions": bound}), Projection(items=items)
    return *(Selection(condition=one) for one in bound), Projection(items=items)


def _join(scope: Scope, select: Select) -> Join | None:
    """The Join over all inputs, without conditions; none if a plain selection does."""
    instants = masters(scope, select)
    if len(scope.sources) == 1 and not scope.sources[0].item.window:
        return None
    order = tuple(Use(input=source.alias, column=POSITION) for source in scope.sources)
    return Join(windows=windows(scope), masters=instants, order=order)
