"""`anabranch explain`: how the queries of a script would run, without running them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from anabranch.cli.queries.run import Run
from anabranch.cli.queries.scripts import cluster_for, read_script
from anabranch.cli.show.tables import err, out, working
from anabranch.coordinator.scripts.plans import asked, explained
from anabranch.errors import ConfigError
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.definitions import relation
from anabranch.plan.explain import explain
from anabranch.plan.picture import picture
from anabranch.plan.tasks import tasks_of
from anabranch.plan.tree import Branch, Lookup, tree


def explain_script(path: Path, name: str | None, svg: Path | None, cluster: Path | None) -> None:
    """Explains the queries. The sites are started, because only Spark knows the types, but nothing
    is deployed on them.
    """
    script = read_script(path)
    with working("Starting …") as say:
        run = Run(cluster_for(script, cluster), say)

    with run:
        known = {one.name: one for one in run.coordinator.plan(script, str(path.resolve().parent))}
        lookup = partial(relation, known)
        notes = run.coordinator.placement_notes(known)
        queries = choose(known, name, str(path))
        sites = run.coordinator.sites
        plans = [explained(asked(sites), tasks_of(query, lookup)) for query in queries]
    for index, query in enumerate(queries):
        title = f"query {query.name}"
        text = "\n\n".join(filter(None, [explain(query, lookup, notes), plans[index]]))
        out.print(f"{title}\n{'─' * len(title)}\n{text}", markup=False)
        if index < len(queries) - 1:
            out.print()
    if svg:
        trees = [one for query in queries for one in titled(query, lookup)]
        try:
            svg.write_text(picture(trees), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write it: {error.strerror}", place=str(svg)) from None
        err.print(f"wrote {svg}", markup=False)


def titled(query: QueryDef, lookup: Lookup) -> list[tuple[str, Branch]]:
    """The trees of a picture: as written, and as run where that differs."""
    run = tree(query, query.nodes, lookup)
    if query.nodes == (query.written,):
        return [(f"query {query.name}", run)]
    written = tree(query, (query.written,), lookup)
    return [(f"query {query.name}, as written", written), (f"query {query.name}, as run", run)]


def choose(known: dict[str, AnyDef], name: str | None, place: str) -> list[QueryDef]:
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    if not queries:
        raise ConfigError("this script creates no query", place=place)
    if name is None:
        return queries
    chosen = [one for one in queries if one.name.lower() == name.lower()]
    if not chosen:
        names = ", ".join(one.name for one in queries)
        raise ConfigError(f"it creates no query {name}", place=place, remedy=f"It has {names}.")
    return chosen
