"""Definitions to plan with, and strategies that make any."""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    Condition,
    Equality,
    Item,
    Join,
    Node,
    Operator,
    Port,
    Projection,
    Selection,
)
from anabranch.plan.service_levels import UNLIMITED, Standby
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.plan.windows import Range, RowPanes, Rows, TableWindow, TimePanes, Until

TEMP = (Column(name="Temp", type="double"),)


def a_stream(name: str = "Sensor1", site: str = "room1", source: Call | None = None) -> StreamDef:
    call = source or Call(name="file", options={"path": "a.csv", "speed": 2.5, "header": True})
    return StreamDef(name=name, columns=TEMP, site=site, source=call)


def a_query(
    name: str = "hot",
    input: str = "Sensor1",
    *operators: Operator,
    site: str = "centre",
    sink: Call | None = None,
    sink_site: str | None = None,
    standby: Standby | None = None,
) -> QueryDef:
    node = Node(
        name=name,
        site=site,
        inputs=(Port(stream=input, alias="s"),),
        operators=operators,
        columns=TEMP,
    )
    return QueryDef(
        name=name,
        columns=TEMP,
        site=site,
        written=node,
        nodes=(node,),
        sink=sink,
        sink_site=sink_site,
        standby=standby,
        base="/data",
    )


def expr(text: str, *columns: str, input: str = "s") -> Expr:
    """`text` with {} where a column is, as in `expr("{} > 50", "Temp")`."""
    uses = tuple(Use(input=input, column=column) for column in columns)
    return Expr(pieces=tuple(text.split("{}")), uses=uses)


HOT = Selection(condition=Condition(expr=expr("{} > 50", "Temp")))
FAHRENHEIT = Projection(
    items=(
        Item(expr=expr("{} * 1.8 + 32", "Temp"), name="Temp", type="double"),
        Item(expr=expr("{}", "Temp"), name="Temp", type="double"),
    )
)

# A lone surrogate is no text: no file and no socket brings one.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, width=64),
    st.sampled_from(["1", "1.0", "true", "null", "", 1, 1.0, float("inf"), float("-inf")]),
)
columns = st.lists(st.builds(Column, name=texts, type=texts), max_size=3).map(tuple)
calls = st.builds(Call, name=texts, options=st.dictionaries(texts, values, max_size=3))
uses = st.builds(Use, input=texts, column=texts)
exprs = st.builds(
    Expr,
    pieces=st.lists(texts, min_size=1, max_size=3).map(tuple),
    uses=st.lists(uses, max_size=2).map(tuple),
)
equalities = st.builds(Equality, sides=st.tuples(exprs, exprs), type=texts)
conditions = st.builds(
    Condition,
    expr=exprs,
    equal=st.none() | st.tuples(uses, uses),
    computed=st.none() | equalities,
    safe=st.booleans(),
)
items = st.lists(st.builds(Item, expr=exprs, name=texts, type=texts), max_size=3).map(tuple)
numbers = st.integers(1, 2**62)
windows = st.one_of(
    st.builds(Range, width_us=numbers),
    st.builds(Rows, count=numbers),
    st.builds(TableWindow),
    st.builds(Until),
)
joins = st.builds(
    Join,
    windows=st.lists(windows, max_size=2).map(tuple),
    masters=st.lists(st.integers(0, 2), max_size=2).map(tuple),
    conditions=st.lists(conditions, max_size=2).map(tuple),
    order=st.lists(uses, max_size=2).map(tuple),
    partial=st.booleans(),
)
aggregate_calls = st.builds(
    AggregateCall,
    function=texts,
    arguments=st.lists(exprs, max_size=2).map(tuple),
    distinct=st.booleans(),
    name=texts,
    type=texts,
    source=st.none() | calls,
)
aggregates = st.builds(
    Aggregate,
    keys=items,
    calls=st.lists(aggregate_calls, max_size=2).map(tuple),
    panes=st.one_of(
        st.builds(TimePanes, width_us=numbers, slide_us=numbers),
        st.builds(RowPanes, width=numbers, slide=numbers),
    ),
)
operators = st.lists(
    st.one_of(
        st.builds(Selection, condition=conditions),
        st.builds(Projection, items=items),
        joins,
        aggregates,
    ),
    max_size=3,
).map(tuple)
ports = st.lists(st.builds(Port, stream=texts, alias=texts), max_size=2).map(tuple)
nodes = st.builds(Node, name=texts, site=texts, inputs=ports, operators=operators, columns=columns)
streams = st.builds(
    StreamDef,
    name=texts,
    columns=columns,
    site=texts,
    source=calls,
    timestamp=st.none() | texts,
    lateness_us=st.integers(0, 2**62),
    text=texts,
    base=texts,
)
sites = st.sampled_from(["centre2", "room 2", "centre-2", "on", "batch"])
standbys = st.builds(
    Standby,
    on=st.none() | sites,
    batch=st.none() | st.integers(1, 999) | st.integers(1, UNLIMITED),
    recovery_us=st.none() | st.integers(1, 2**53) | st.integers(1, 10**6).map(lambda s: s * 10**6),
    overhead=st.none() | st.floats(0, 1),
    compress=st.sampled_from([None, "zlib", "lz4", "zstd"]),
)
queries = st.builds(
    QueryDef,
    name=texts,
    columns=columns,
    site=texts,
    written=nodes,
    nodes=st.lists(nodes, max_size=2).map(tuple),
    sink=st.none() | calls,
    sink_site=st.none() | texts,
    standby=st.none() | standbys,
    text=texts,
    base=texts,
)
inputs = st.builds(TaskInput, stream=texts, site=texts, alias=texts, columns=columns)
tasks = st.builds(
    TaskSpec,
    name=texts,
    query=texts,
    site=texts,
    inputs=st.lists(inputs, max_size=2).map(tuple),
    operators=operators,
    columns=columns,
    output=st.none() | texts,
    sink=st.none() | calls,
)
