"""Whether a window aggregate runs as a stage, and what the query becomes if it does."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.plan.catalog import QueryDef, Relation, StreamDef
from anabranch.plan.operators import Aggregate, Node, Operator, Port, Selection, Union
from anabranch.plan.spec import Column
from anabranch.plan.stage import LATE_COLUMN, Role, Stage, StageInput, refusal
from anabranch.plan.windows import WINDOW_END, WINDOW_START

Lookup = Callable[[str], Relation]


def candidate(
    query: QueryDef, lookup: Lookup, partitioned: Callable[[str], bool]
) -> tuple[Stage | None, str]:
    """The stage that `query` could run as, or why it cannot. `partitioned` says whether a source of
    that name can be read in parts.
    """
    aggregate = next((o for o in query.written.operators if isinstance(o, Aggregate)), None)
    if aggregate is None:
        return None, "it is no window aggregate"
    source = lookup(query.written.inputs[0].stream)
    input = _input(source) if isinstance(source, StreamDef) else None
    if isinstance(source, StreamDef) and source.shed:
        return None, "its stream sheds load"
    if query.deadline:
        return None, "it has a deadline"
    if query.written.inputs[0].past:
        return None, "it reads what is kept of its stream"
    if reason := refusal(input, aggregate, partitioned):
        return None, reason
    assert input is not None
    before = query.written.operators[: query.written.operators.index(aggregate)]
    conditions = tuple(one.condition for one in before if isinstance(one, Selection))
    return Stage(input=input, conditions=conditions, aggregate=aggregate), ""


def _input(source: StreamDef) -> StageInput | None:
    if source.source is None:
        return None
    return StageInput(
        stream=source.name,
        columns=source.columns,
        source=source.source,
        timestamp=source.timestamp,
        unit=source.unit,
        lateness_us=source.lateness_us,
        ahead_us=source.ahead_us if source.timestamp else None,
        base=source.base,
    )


def staged(
    query: QueryDef, stage: Stage, lookup: Lookup, why: str
) -> tuple[QueryDef, list[StreamDef]]:
    """`query` as the reader of a stage's results, and the streams of the stage: one stream, where
    the source is; or one for each server, and one of the merged results unless the servers read
    themselves.
    """
    stage = stage.model_copy(update={"why": why})
    source = lookup(stage.input.stream)
    if len(stage.sites) < 2:
        site = stage.sites[0] if stage.sites else source.site
        streams = [_stream(query, stage, site, "whole")]
    else:
        role: Role = "whole" if stage.keyed else "part"
        numbered = [stage.model_copy(update={"part": n}) for n in range(stage.parts)]
        streams = [_stream(query, one, stage.sites[one.part], role) for one in numbered]
        if not stage.keyed:
            streams = [_stream(query, stage, stage.sites[0], "merge"), *streams]
    read = [one for one in streams if one.stage and one.stage.role != "part"]
    if stage.late:
        streams.append(_late(query, stage, streams[0].site))
    behind = query.written.operators[_place(query, stage) + 1 :]
    first: tuple[Operator, ...] = (Union(),) if len(read) > 1 else ()
    node = Node(
        name=query.name,
        site=query.site,
        inputs=tuple(Port(stream=one.name, alias="") for one in read),
        operators=(*first, *behind),
        columns=query.columns,
    )
    names = tuple(one.name for one in streams)
    update = {"nodes": (node,), "stages": names, "stage_why": why}
    return query.model_copy(update=update), streams


def _place(query: QueryDef, stage: Stage) -> int:
    return query.written.operators.index(stage.aggregate)


def _late(query: QueryDef, stage: Stage, site: str) -> StreamDef:
    """The stream of late tuples. All partitions are read in one place, so it is a stream like any
    other.
    """
    alone = {"role": "late", "sites": (), "part": 0}
    return StreamDef(
        name=f"{query.name}.late",
        columns=(*stage.input.columns, Column(name=LATE_COLUMN, type="bigint")),
        site=site,
        stage=stage.model_copy(update=alone),
        text=f"what came too late for {query.name}",
        base=query.base,
    )


def _stream(query: QueryDef, stage: Stage, site: str, role: Role) -> StreamDef:
    aggregate = stage.aggregate
    bounds = (Column(name=n, type=aggregate.panes.bounds) for n in (WINDOW_START, WINDOW_END))
    several = stage.parts > 1 and role != "merge"
    return StreamDef(
        name=f"{query.name}.stage{f'.{stage.part + 1}' if several else ''}",
        columns=(
            *(Column(name=key.name, type=key.type) for key in aggregate.keys),
            *(Column(name=call.name, type=call.type) for call in aggregate.calls),
            *bounds,
        ),
        site=site,
        stage=stage.model_copy(update={"role": role}),
        text=f"the windows of {query.name}",
        base=query.base,
    )
