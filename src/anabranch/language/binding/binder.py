"""Turns statements into definitions: what the names mean, and the operators that compute the
result.

Pure: `lookup` says what exists, and `typer` knows the types. Whether a name is taken or a site
exists is not asked here; statements keep the spans to point at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.hidden import MASK, masked, names_password
from anabranch.language.binding.aggregates import bind_aggregates
from anabranch.language.binding.columns import outputs
from anabranch.language.binding.from_clause import Lookup, bind_from, masters, union_ports, windows
from anabranch.language.expressions.aggregates import IsOwn, find_calls, refused, supported
from anabranch.language.expressions.conjuncts import Sides, bind_conditions, equality, sides
from anabranch.language.expressions.functions import check_functions
from anabranch.language.expressions.scope import QueryInput, Scope
from anabranch.language.expressions.types import Asked, Typer, ask
from anabranch.language.grammar.statements import (
    CallNode,
    CreateQuery,
    Expression,
    Name,
    OptionNode,
    OptionValue,
    Select,
    SelectItem,
    StandbyNode,
)
from anabranch.language.source import Script, Span
from anabranch.plan.catalog import AggregateDef, QueryDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.keep import Keep
from anabranch.plan.operators import (
    Call,
    Column,
    Condition,
    Item,
    Join,
    Node,
    Operator,
    Port,
    Projection,
    Selection,
    Union,
)
from anabranch.plan.service_levels import Standby
from anabranch.plan.spec import Secret, Where
from anabranch.stream.batch import POSITION


def bind_query(
    stmt: CreateQuery,
    script: Script,
    lookup: Lookup,
    names: Iterable[str],
    typer: Typer,
    *,
    base: str,
) -> QueryDef:
    """The query that `stmt` declares. Unless AT names one site, its place is decided later; until
    then it is at the site of its first stream.

    `names` are those that `lookup` knows, for suggestions. `typer` is called once, with the inputs'
    columns and `_ts`, for the items and last the conditions; for aggregates it is called twice.
    """
    scope = bind_from(script, stmt.select.sources, lookup, names)
    first = next(source for source in scope.sources if not source.is_table)
    where = Where(at=_names(stmt.at), never=_names(stmt.never))
    _check_sites(script, stmt)
    site = where.at[0] if where.at else first.definition.site
    operators = _operators(scope, stmt.select, lookup, typer)
    projection = operators[-1]
    assert isinstance(projection, Projection)
    columns = tuple(Column(name=item.name, type=item.type) for item in projection.items)
    ports = tuple(_port(one) for one in scope.sources)
    if others := stmt.select.union:
        ports += union_ports(script, first.definition, others, lookup, names)
        operators = (Union(), *operators)
    node = Node(
        name=stmt.name,
        site=site,
        inputs=ports,
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
        standby=_bind_standby(script, stmt.standby, where) if stmt.standby else None,
        where=where,
        deadline=stmt.deadline,
        cost=stmt.cost,
        keep=_bind_keep(script, stmt),
        text=script.shown(stmt.span),
        base=base,
    )


def bind_call(node: CallNode) -> Call:
    """The call with its values. A secret that is written out in it becomes a secret without a
    name.
    """
    return Call(name=node.name, options={one.name: bind_option(one) for one in node.options})


def bind_option(option: OptionNode) -> OptionValue:
    value = option.value
    if isinstance(value, bool | Secret) or value == "":
        return value
    if names_password(option.name):
        return Secret(shown=MASK, value=str(value))
    if isinstance(value, str) and (seen := masked(value)) != value:
        return Secret(shown=f"'{seen}'", value=value)
    return value


def _names(sites: Iterable[Name]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(site.text for site in sites))


def _check_sites(script: Script, stmt: CreateQuery) -> None:
    """Raises unless AT leaves a site that NOT AT does not exclude."""
    never = {site.text: site for site in stmt.never}
    if stmt.at and all(site.text in never for site in stmt.at):
        site = never[stmt.at[0].text]
        raise script.error(site.span, f"the query is to run at {site.text}, and not to")


def _bind_standby(script: Script, node: StandbyNode, where: Where) -> Standby:
    if node.on and where.at == (node.on.text,):
        raise script.error(
            node.on.span,
            f"the query itself runs at {node.on.text}, and its standby must be elsewhere",
            "Name another site, or leave ON out.",
        )
    return node.asked


def _port(source: QueryInput) -> Port:
    node = source.item.past
    past = node.asked if node else None
    return Port(stream=source.definition.name, alias=source.alias, past=past)


def _bind_keep(script: Script, stmt: CreateQuery) -> Keep | None:
    if stmt.keep is None:
        return None
    if stmt.standby:
        raise script.error(
            stmt.keep.span,
            "a query with a STANDBY cannot KEEP: who takes over has not what is kept",
            "Keep what it reads, or the results of a query that reads this one.",
        )
    return stmt.keep.asked


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
    """The first place that makes the query an aggregate, if it is one."""
    items = [item.expression for item in select.items if isinstance(item, SelectItem)]
    for expression in [*items, *([select.having] if select.having else [])]:
        if calls := find_calls(expression.tokens, is_own):
            return calls[0].name.span
    return select.group[0].span if select.group else None


def _plain_operators(
    scope: Scope, select: Select, typer: Typer, is_own: IsOwn
) -> tuple[Operator, ...]:
    """A chain of Selections, or one Join, and then a Projection."""
    script = scope.script

    def bind(expression: Expression) -> Expr:
        check_functions(script, expression, scope.columns_in(expression), supported(script, is_own))
        return scope.expr(expression)

    # First what is wrong with FROM: names would be looked for in vain.
    head = _join(scope, select)
    columns = outputs(scope, select.items, bind)
    conditions: list[tuple[Condition, Span]] = []
    if select.where:
        message = "aggregates cannot stand in WHERE"
        remedy = "Make the aggregate a query of its own, over a window, and read that."
        check = refused(script, is_own, message, remedy)
        check_functions(script, select.where, scope.columns_in(select.where), check)
        conditions = bind_conditions(scope, select.where)
    questions = [Asked(one.expr, one.span) for one in columns]
    questions += [Asked(condition.expr, span, "WHERE") for condition, span in conditions]
    equalities = _equalities(scope, select, conditions) if head else {}
    questions += [Asked(side, conditions[n][1]) for n, pair in equalities.items() for side in pair]
    types = ask(script, typer, scope.columns, scope.naming, questions)
    items = tuple(
        Item(expr=one.expr, name=one.name.text, type=type_)
        for one, type_ in zip(columns, types, strict=False)
    )
    bound = [condition for condition, _ in conditions]
    known = iter(types[len(columns) + len(bound) :])
    for number, pair in equalities.items():
        computed = equality(pair, (next(known), next(known)))
        bound[number] = bound[number].model_copy(update={"computed": computed})
    if head:
        return head.model_copy(update={"conditions": tuple(bound)}), Projection(items=items)
    return *(Selection(condition=one) for one in bound), Projection(items=items)


def _equalities(
    scope: Scope, select: Select, conditions: Sequence[tuple[Condition, Span]]
) -> dict[int, Sides]:
    """The conditions that are equalities, by their numbers. Equalities of plain columns are left
    out.
    """
    pairs = sides(scope, select.where) if select.where else []
    return {
        number: pair
        for number, (pair, (condition, _)) in enumerate(zip(pairs, conditions, strict=True))
        if pair and not condition.equal
    }


def _join(scope: Scope, select: Select) -> Join | None:
    """The Join over all inputs, without conditions; None if a plain selection is enough."""
    instants = masters(scope, select)
    if len(scope.sources) == 1 and not scope.sources[0].item.window:
        return None
    order = tuple(Use(input=source.alias, column=POSITION) for source in scope.sources)
    return Join(windows=windows(scope), masters=instants, order=order)
