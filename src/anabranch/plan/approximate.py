"""Queries whose keys are split over workers, so that the windows of a lost worker can be
estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.plan.catalog import (
    AnyDef,
    Approximate,
    ApproximateDef,
    Generation,
    Once,
    QueryDef,
    Worker,
)
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import Condition, Item, Node, Operator, Projection, Selection
from anabranch.plan.spec import Column
from anabranch.plan.windows import WINDOW_END

ESTIMATED, LOWER, UPPER, CONFIDENCE = "estimated", "lower", "upper", "confidence"
MARKS = (
    Item(expr=Expr(pieces=("false",)), name=ESTIMATED, type="boolean"),
    *(
        Item(expr=Expr(pieces=("CAST(NULL AS DOUBLE)",)), name=name, type="double")
        for name in (LOWER, UPPER, CONFIDENCE)
    ),
)
"""What a worker's results have besides the query's own columns: they are exact."""


def with_workers(definition: ApproximateDef) -> ApproximateDef:
    """The query with a worker at each of its sites."""
    workers = tuple(
        Worker(site=site, generations=(Generation(query=f"{definition.name}/{number}"),))
        for number, site in enumerate(definition.asked.sites, 1)
    )
    return definition.model_copy(update={"workers": workers})


def replaced(definition: ApproximateDef, number: int, site: str, since: int) -> ApproximateDef:
    """The query with a replacement, at `site`, for the worker that died."""
    before = definition.workers[number].generations
    name = f"{definition.name}/{number + 1}.{len(before) + 1}"
    worker = Worker(site=site, generations=(*before, Generation(query=name, since=since)))
    workers = (*definition.workers[:number], worker, *definition.workers[number + 1 :])
    return definition.model_copy(update={"workers": workers})


def dealt_out(
    definition: ApproximateDef,
    assignment: tuple[tuple[str, ...], ...],
    changed: Sequence[int],
    since: int,
    windows: int,
) -> ApproximateDef:
    """The query with a new worker query, at the same site, for each worker that gets other keys."""
    workers, leaving = list(definition.workers), []
    for number in changed:
        worker = workers[number]
        leaving.append(worker.query)
        name = f"{definition.name}/{number + 1}.{len(worker.generations) + 1}"
        new = Generation(query=name, since=since, handed=True)
        workers[number] = Worker(site=worker.site, generations=(*worker.generations, new))
    update = {"workers": tuple(workers), "assignment": assignment, "leaving": tuple(leaving)}
    return definition.model_copy(update={**update, "dealt": windows})


def key_text(key: Sequence[object]) -> str:
    """The text of a key in an assignment; `_key_text` computes the same of a tuple. NULL is the
    empty text.
    """
    return "\x1f".join("" if part is None else str(part) for part in key)


def located(definition: ApproximateDef, known: Mapping[str, AnyDef]) -> ApproximateDef:
    """The query with the present sites of its workers' queries: a standby may have taken over."""
    workers = tuple(
        worker.model_copy(update={"site": query.site})
        if isinstance(query := known.get(worker.query), QueryDef)
        else worker
        for worker in definition.workers
    )
    return definition.model_copy(update={"workers": workers})


def worker_queries(definition: ApproximateDef) -> list[QueryDef]:
    return [worker_query(definition, number) for number in range(len(definition.workers))]


def worker_query(definition: ApproximateDef, number: int) -> QueryDef:
    """The query of one worker: it filters its keys in front of the aggregate, and, if it began
    late, whole windows after it.
    """
    worker = definition.workers[number]
    node = definition.template.written
    *selections, aggregate, projection = node.operators
    mine: list[Operator] = [
        *selections,
        Selection(condition=Condition(expr=_mine(definition, number))),
        aggregate,
    ]
    if worker.since:
        late = Expr(
            pieces=("unix_micros(", f") >= {worker.since}"),
            uses=(Use(input="", column=WINDOW_END),),
        )
        mine.append(Selection(condition=Condition(expr=late)))
    own = Node(
        name=worker.query,
        site=worker.site,
        inputs=node.inputs,
        operators=(*mine, projection),
        columns=node.columns,
    )
    update = {
        "name": worker.query,
        "site": worker.site,
        "written": own,
        "nodes": (own,),
        "part_of": definition.name,
        "once": Once(query=definition.name, keys=definition.keys),
        "where": None,
    }
    return definition.template.model_copy(update=update)


def _mine(definition: ApproximateDef, number: int) -> Expr:
    """An expression that is true if a tuple's key is this worker's."""
    aggregate = next(op for op in definition.template.written.operators if op.kind == "aggregate")
    key = _key_text([item.expr for item in aggregate.keys])
    count = len(definition.workers)
    by_hash = _around("pmod(hash(", key, f"), {count}) = {number}")
    if not any(definition.assignment):
        return by_hash
    listed = [text for keys in definition.assignment for text in keys]
    other = _both(_around("", key, f" NOT IN ({_literals(listed)})"), "AND", by_hash)
    own = definition.assignment[number]
    if not own:
        return other
    return _both(_around("", key, f" IN ({_literals(own)})"), "OR", other)


def approximate(
    query: QueryDef, promise: Approximate, keys: tuple[str, ...], value: str, width: int, slide: int
) -> ApproximateDef:
    """The approximate query made of a bound query with all its columns."""
    *before, projection = query.written.operators
    assert isinstance(projection, Projection)
    marked = Projection(items=(*projection.items, *MARKS))
    columns = (*query.columns, *(Column(name=item.name, type=item.type) for item in MARKS))
    node = query.written.model_copy(update={"operators": (*before, marked), "columns": columns})
    template = query.model_copy(update={"written": node, "nodes": (node,), "columns": columns})
    definition = ApproximateDef(
        name=query.name,
        columns=columns,
        site=promise.sites[0],
        asked=promise,
        template=template,
        keys=keys,
        value=value,
        width_us=width,
        slide_us=slide,
        text=query.text,
        base=query.base,
    )
    return with_workers(definition)


def _key_text(keys: list[Expr]) -> Expr:
    """An expression that writes a key of several columns as one text."""
    texts = [_around("coalesce(CAST(", key, " AS STRING), '')") for key in keys]
    joined = texts[0]
    for text in texts[1:]:
        joined = _joined(joined, ", ", text)
    return joined if len(texts) == 1 else _around("concat_ws(char(31), ", joined, ")")


def _around(before: str, inner: Expr, behind: str) -> Expr:
    first, *rest = inner.pieces
    pieces = [before + first, *rest]
    pieces[-1] += behind
    return Expr(pieces=tuple(pieces), uses=inner.uses)


def _joined(left: Expr, between: str, right: Expr) -> Expr:
    *first, last = left.pieces
    head, *rest = right.pieces
    return Expr(pieces=(*first, last + between + head, *rest), uses=(*left.uses, *right.uses))


def _both(left: Expr, word: str, right: Expr) -> Expr:
    return _around("((", _joined(left, f") {word} (", right), "))")


def _literals(texts: list[str] | tuple[str, ...]) -> str:
    return ", ".join("'" + one.replace("\\", "\\\\").replace("'", "\\'") + "'" for one in texts)
