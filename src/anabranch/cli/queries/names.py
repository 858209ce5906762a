"""The names that the prompt completes. They are asked for in the background, and nothing waits for
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anabranch.cli.queries.completion import Call, Names
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError

Execute = Callable[[str], Sequence[Answer]]
_QUESTION = "".join(
    f"SHOW {kind}; "
    for kind in ("STREAMS", "TABLES", "QUERIES", "AGGREGATES", "POCKETS", "SITES", "SECRETS")
)


class KnownNames:
    """`current` is the newest answer; while the coordinator is away it stays as it was."""

    def __init__(self, execute: Execute) -> None:
        self.current = Names()
        self._execute = execute
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="names", daemon=True)
        self._thread.start()

    def refresh(self) -> None:
        """Asks again soon."""
        self._wanted.set()

    def _run(self) -> None:
        self.current = replace(self.current, **_calls())
        while self._wanted.wait():
            self._wanted.clear()
            try:
                self.current = _with(self.current, self._execute(_QUESTION))
            except AnabranchError:
                continue


def _with(names: Names, answers: Sequence[Answer]) -> Names:
    streams, tables, queries, aggregates, pockets, sites, secrets = (
        answer.rows for answer in answers
    )
    return replace(
        names,
        streams={row[0]: column_names(row[-1]) for row in streams},
        tables={row[0]: column_names(row[-1]) for row in tables},
        queries={row[0]: column_names(row[-1]) for row in queries},
        aggregates=[row[0] for row in aggregates],
        pockets=[row[0] for row in pockets],
        sites=[row[0] for row in sites],
        secrets=[row[0] for row in secrets],
    )


def column_names(columns: str) -> list[str]:
    """The column names in `a BIGINT, b STRUCT<c: INT, d: INT>`: a and b. Commas inside a type do
    not count.
    """
    found, depth, start = [], 0, 0
    for index, char in enumerate(f"{columns},"):
        depth += (char in "(<") - (char in ")>")
        if char == "," and not depth:
            found.append(columns[start:index].split()[:1])
            start = index + 1
    return [name for words in found for name in words]


def _calls() -> dict[str, Any]:
    """All sources and sinks with their options. This imports Spark, which takes a moment."""
    from anabranch.connectors import SINKS, SOURCES, TABLES

    kinds: dict[str, Any] = {"sources": SOURCES, "table_sources": TABLES, "sinks": SINKS}
    return {
        kind: {name: _call(registry, name) for name in registry} for kind, registry in kinds.items()
    }


def _call(registry: Any, name: str) -> Call:
    try:
        options = registry.find(name).options
    except AnabranchError:  # it needs a package that is not installed here
        return Call()
    return Call(
        {option.name: option.help for option in options},
        {option.name: option.choices for option in options if option.choices},
    )
