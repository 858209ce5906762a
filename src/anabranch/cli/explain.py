"""`anabranch explain`: how the queries of a script would run, without running them."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.run import Run, cluster_for, read_script
from anabranch.cli.show import err, out
from anabranch.errors import ConfigError
from anabranch.plan.catalog import AggregateDef, AnyDef, PocketDef, QueryDef, Relation
from anabranch.plan.explain import explain
from anabranch.plan.picture import picture
from anabranch.plan.tree import Branch, Lookup, tree


def explain_script(path: Path, name: str | None, svg: Path | None, cluster: Path | None) -> None:
    """The sites are started, as types are Spark's to say, but nothing is deployed on them."""
    script = read_script(path)
    with err.status("Starting …") as spinner:
        run = Run(cluster_for(script, cluster), spinner.update)
    with run:
        known = {one.name: one for one in run.coordinator.plan(script, str(path.resolve().parent))}
    queries = choose(known, name, str(path))

    def lookup(relation: str) -> Relation:
        found = known[relation]
        assert not isinstance(found, AggregateDef | PocketDef)
        return found

    for index, query in enumerate(queries):
        title = f"query {query.name}"
        out.print(f"{title}\n{'─' * len(title)}\n{explain(query, lookup)}", markup=False)
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
