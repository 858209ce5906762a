"""`anabranch up --anew`: what it deletes, and the question whether that is meant."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import typer
from rich.markup import escape

from anabranch.cli.show.tables import err
from anabranch.coordinator.base.catalog import Catalog
from anabranch.errors import ConfigError
from anabranch.plan.catalog import AnyDef, ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.spec import Call


def confirm_anew(state: Path, *, yes: bool) -> None:
    """Says what is deleted, and asks unless `yes`. Raises typer.Abort if it is not meant, and
    ConfigError if nobody can be asked. Nothing has been deleted yet.
    """
    lines = list(deleted(_definitions(state)))
    if not lines:
        return
    err.print("Deploying anew begins every stream and query from the beginning, and deletes:")
    for line in lines:
        err.print(f"  {escape(line)}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "up --anew deletes what queries have and wrote, and nobody can be asked here",
            remedy="Say --yes if that is meant; without --anew everything goes on where it was.",
        )
    typer.confirm("Go on?", abort=True, err=True)


def _definitions(state: Path) -> list[AnyDef]:
    if not (state / "catalog.db").exists():
        return []
    catalog = Catalog(state / "catalog.db")
    try:
        return list(catalog.definitions().values())
    finally:
        catalog.close()


def deleted(definitions: Iterable[AnyDef]) -> Iterator[str]:
    """A line for each thing that is lost when these are deployed from the beginning."""
    known = list(definitions)
    for one in known:
        if isinstance(one, StreamDef | TableDef):
            state = (
                " and the state of its stage" if isinstance(one, StreamDef) and one.stage else ""
            )
            yield f"{one.kind} {one.name}: how far it was read, and what it has kept{state}"
        elif isinstance(one, PocketDef):
            yield f"pocket {one.name}: the state of its object"
        elif isinstance(one, QueryDef) and not one.part_of:
            yield f"query {one.name}: its open windows and positions{_written(one.sink)}"
        elif isinstance(one, ApproximateDef):
            yield f"query {one.name}: its open windows and positions{_written(one.template.sink)}"


def _written(sink: Call | None) -> str:
    """Says what happens to the results that were already written."""
    if sink is None:
        return ""
    options = sink.options
    match sink.name:
        case "jsonl" | "csv" | "parquet":
            return f"; what it wrote to {options.get('path')}"
        case "postgres":
            return f"; its rows in table {options.get('table')}"
        case "kafka":
            return f". Topic {options.get('topic')} keeps its records, and gets them all again"
        case _:
            return ""
