"""Definitions to plan with, and strategies that make any."""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.operators import Call, Column, Operator, Projection, Selection
from anabranch.plan.tasks import Input, TaskSpec

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
) -> QueryDef:
    return QueryDef(
        name=name, columns=TEMP, site=site, input=input, alias="s", operators=operators, sink=sink,
        base="/data",
    )  # fmt: skip


HOT = Selection(condition="s.Temp > 50")
FAHRENHEIT = Projection(items=(("s.Temp * 1.8 + 32", "Temp"), ("Temp", "Temp")))

# A lone surrogate is no text: no file and no socket brings one.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.one_of(
    texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, width=64),
    st.sampled_from(["1", "1.0", "true", "null", "", 1, 1.0, float("inf"), float("-inf")]),
)  # fmt: skip
columns = st.lists(st.builds(Column, name=texts, type=texts), max_size=3).map(tuple)
calls = st.builds(Call, name=texts, options=st.dictionaries(texts, values, max_size=3))
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
operators = st.lists(
    st.one_of(st.builds(Selection, condition=texts), st.builds(Projection, items=pairs)), max_size=3
).map(tuple)
streams = st.builds(
    StreamDef, name=texts, columns=columns, site=texts, source=calls, timestamp=st.none() | texts,
    lateness_us=st.integers(0, 2**62), text=texts, base=texts,
)  # fmt: skip
queries = st.builds(
    QueryDef, name=texts, columns=columns, site=texts, input=texts, alias=texts,
    operators=operators, sink=st.none() | calls, text=texts, base=texts,
)  # fmt: skip
inputs = st.builds(Input, stream=texts, site=texts, alias=texts, columns=columns)
tasks = st.builds(
    TaskSpec, name=texts, query=texts, site=texts, inputs=st.lists(inputs, max_size=2).map(tuple),
    operators=operators, columns=columns, output=st.none() | texts, sink=st.none() | calls,
)  # fmt: skip
