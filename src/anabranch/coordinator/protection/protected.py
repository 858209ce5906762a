"""What definitions say of protection: which tasks are to have a standby, and where a query is once
one of them has moved."""

from __future__ import annotations

from typing import Any

from anabranch.coordinator.deploy.deploy import Definitions, tasks
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.protection import SHARED_SINKS, Standby
from anabranch.plan.tasks import TaskSpec, sink_task


def protected(known: Definitions) -> dict[str, Standby]:
    """The tasks that queries ask a standby for. What reads a source where that is dies with it,
    and comes back with it; only the query itself is protected even there."""
    found: dict[str, Standby] = {}
    for query in known.values():
        if isinstance(query, PocketDef) and query.standby:
            found[query.name] = query.standby
        if not isinstance(query, QueryDef) or query.standby is None:
            continue
        for node in query.nodes:
            sources = [known.get(port.stream) for port in node.inputs]
            with_it = any(isinstance(one, StreamDef | TableDef) and one.site == node.site
                          for one in sources)  # fmt: skip
            if node.name == query.name or not with_it:
                found[node.name] = query.standby
    return found


def sink_along(spec: TaskSpec, site: str, known: Definitions) -> TaskSpec | None:
    """The task of the sink that goes where its query goes, as it would be at `site`."""
    query = known.get(spec.name)
    if not isinstance(query, QueryDef) or not query.sink or settled_sink(query):
        return None
    sink = spec_of(sink_task(query.name), known)
    there = tuple(source.model_copy(update={"site": site}) for source in sink.inputs)
    return sink.model_copy(update={"site": site, "inputs": there})


def spec_of(name: str, known: Definitions) -> TaskSpec:
    return next(task for task in tasks(known.values(), known) if task.name == name)


def settled_sink(query: QueryDef) -> str | None:
    """The site that a query's sink stays at though the query moves; None if it moves along."""
    if query.sink_site or not query.sink or query.sink.name in SHARED_SINKS:
        return query.sink_site
    return query.site


def placed(one: AnyDef, task: str, site: str) -> AnyDef:
    """A definition once `task` runs at another site: of a query or pocket that it belongs to, or of
    the stream that the pocket fills."""
    if isinstance(one, PocketDef) and one.name == task:
        return one.model_copy(update={"site": site})
    if not isinstance(one, QueryDef) or all(node.name != task for node in one.nodes):
        return one
    nodes = tuple(n.model_copy(update={"site": site}) if n.name == task else n for n in one.nodes)
    update: dict[str, Any] = {"nodes": nodes}
    if task == one.name:
        update["site"] = site
        update["sink_site"] = settled_sink(one)
    return one.model_copy(update=update)
