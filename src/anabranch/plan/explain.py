"""EXPLAIN: a query's processing tree as text, before and after rewriting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.plan.catalog import QueryDef
from anabranch.plan.tree import Branch, Lookup, tree


def explain(query: QueryDef, lookup: Lookup, notes: Mapping[str, str] | None = None) -> str:
    """One operator a line with the site that runs it; a link is shown where the site changes.
    `notes` say more about nodes.
    """
    run = draw(tree(query, query.nodes, lookup, notes))
    if query.nodes == (query.written,):
        return run
    written = draw(tree(query, (query.written,), lookup))
    return f"As written:\n{written}\n\nAs run:\n{run}"


def draw(branch: Branch) -> str:
    lines = list(_lines(branch, "", ""))
    width = max(len(text) for text, site in lines if site) + 2
    return "\n".join(f"{text:<{width}}@ {site}" if site else text for text, site in lines)


def _lines(branch: Branch, first: str, rest: str) -> Iterator[tuple[str, str]]:
    """The branch's lines: `first` leads its own line, `rest` those below it. Notes have no site."""
    yield first + branch.text, branch.site
    for note in branch.notes:
        yield rest + ("│  " if branch.inputs else "   ") + note, ""
    for index, inner in enumerate(branch.inputs):
        last = index == len(branch.inputs) - 1
        yield from _lines(
            inner, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )
