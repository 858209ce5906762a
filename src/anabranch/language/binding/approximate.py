"""APPROXIMATE WITHIN e CONFIDENCE c%: which queries can have it, and what it makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.language.grammar.statements import ApproximateNode, CreateQuery
from anabranch.language.source import Script
from anabranch.plan.approximate import MARKS, approximate
from anabranch.plan.catalog import Approximate, ApproximateDef, QueryDef
from anabranch.plan.expressions import Use
from anabranch.plan.operators import Aggregate, Projection
from anabranch.plan.windows import WINDOW_END, WINDOW_START, TimePanes

KEY_TYPES = frozenset({"string", "bigint", "int", "smallint", "tinyint"})
VALUE_TYPES = frozenset({"double", "float"})
SINK = "postgres"
"""Takes an estimate without ever overwriting an exact value, and keeps what was."""
_ONE_WRITER = "has one writer, and workers are at several sites"
WHY_NOT = {
    "console": "console() keeps nothing",
    "csv": f"a file {_ONE_WRITER}",
    "jsonl": f"a file {_ONE_WRITER}",
    "kafka": "a topic would keep an estimate and the exact value both",
    "parquet": f"a file {_ONE_WRITER}",
    "spark": "what spark() writes through cannot refuse a second value for a window",
}
"""Sinks that cannot."""


def bind_approximate(
    script: Script, stmt: CreateQuery, query: QueryDef, sites: Sequence[str]
) -> ApproximateDef:
    """Checks that `query`, which is bound, can be estimated. `sites` are the sites of its
    workers.
    """
    node = stmt.approximate
    assert node is not None
    aggregate = next((op for op in query.written.operators if isinstance(op, Aggregate)), None)
    if aggregate is None or not aggregate.keys or not isinstance(aggregate.panes, TimePanes):
        raise script.error(
            node.span,
            "only window results by key can be estimated",
            "Write FROM stream[30m SLIDE 10m] and GROUP BY.",
        )
    if stmt.select.having:
        message = "HAVING and APPROXIMATE do not go together"
        raise script.error(stmt.select.having.span, message, "Select from the table of results.")
    if stmt.keep or any(source.past for source in stmt.select.sources):
        message = "workers that are replaced begin with what comes then"
        remedy = "Leave KEEP, SINCE and BEGINNING out, or APPROXIMATE."
        raise script.error(node.span, message, remedy)
    if stmt.standby:
        message = "STANDBY and APPROXIMATE do not go together"
        remedy = "Leave STANDBY out: workers that cannot be estimated get one by themselves."
        raise script.error(stmt.standby.span, message, remedy)
    _check_sink(script, stmt, node)
    if len(sites) <= node.failures:
        needed = "two" if node.failures == 1 else str(node.failures + 1)
        message = f"keys need at least {needed} sites to be split over"
        raise script.error(node.span, message, "Start more sites, or name them: ON site1, site2.")
    keys, value = _columns(script, stmt, query, aggregate)
    promise = Approximate(
        epsilon=node.epsilon,
        confidence=node.confidence,
        sites=tuple(sites),
        failures=node.failures,
    )
    panes = aggregate.panes
    return approximate(query, promise, keys, value, panes.width_us, panes.slide_us)


def _check_sink(script: Script, stmt: CreateQuery, node: ApproximateNode) -> None:
    if stmt.sink is not None and stmt.sink.name == SINK:
        return
    message = "estimates need a sink that never overwrites an exact value"
    remedy = f"Write INTO {SINK}(url = '…', table = '…')"
    if stmt.sink is None:
        raise script.error(node.span, message, f"{remedy}.")
    if why := WHY_NOT.get(stmt.sink.name):
        message, remedy = f"{message}: {why}", f"{remedy}, and read the table from there"
    raise script.error(stmt.sink.span, message, f"{remedy}.")


def _columns(
    script: Script, stmt: CreateQuery, query: QueryDef, aggregate: Aggregate
) -> tuple[tuple[str, ...], str]:
    """The output columns that hold the key, and the output column that holds the value."""
    assert stmt.approximate is not None
    span = stmt.approximate.span
    projection = query.written.operators[-1]
    assert isinstance(projection, Projection)
    by_use = {item.expr.column: item.name for item in projection.items if item.expr.column}
    outputs = [by_use.get(Use(input="", column=key.name)) for key in aggregate.keys]
    if None in outputs:
        raise script.error(span, "estimates need all of GROUP BY in the result", "Select it.")
    for key in aggregate.keys:
        if key.type not in KEY_TYPES:
            message = f"a key of type {key.type} cannot be told apart in the results"
            raise script.error(span, message, "Group by text or whole numbers.")
    bounds = {by_use.get(Use(input="", column=name)) for name in (WINDOW_START, WINDOW_END)}
    values = [item for item in projection.items if item.name not in {*outputs, *bounds}]
    if len(values) != 1 or values[0].type not in VALUE_TYPES:
        raise script.error(
            span,
            "one value by key is estimated, a DOUBLE",
            "Select the key, one aggregate such as AVG(x), and the window's bounds if you like.",
        )
    if taken := {item.name.lower() for item in projection.items} & {one.name for one in MARKS}:
        name = sorted(taken)[0]
        raise script.error(span, f"the column {name} is ours", "Call yours something else.")
    return tuple(name for name in outputs if name), values[0].name
