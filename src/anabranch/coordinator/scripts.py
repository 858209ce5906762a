"""Running a script: every statement is checked before any of them changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.coordinator.sites import Sites, nearest
from anabranch.language.binder import TypeAnswer, bind_query, bind_stream
from anabranch.language.parser import parse
from anabranch.language.source import Script, Span
from anabranch.language.statements import (
    CreateQuery,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Name,
    Show,
    Statement,
)
from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.explain import explain, show_call
from anabranch.plan.operators import Column

Definitions = dict[str, StreamDef | QueryDef]


@dataclass(frozen=True)
class Answer:
    """What a statement says back: a line, a text, or a table."""

    kind: Literal["line", "text", "table"]
    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "columns": self.columns, "rows": self.rows}


@dataclass
class Changes:
    """What a checked script asks for."""

    answers: list[Answer] = field(default_factory=list)
    add: list[StreamDef | QueryDef] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)


class ScriptCheck:
    """Checks the statements of one script in order, each against what those before it made."""

    def __init__(
        self,
        script: Script,
        definitions: Definitions,
        sites: Sites,
        base: str,
        site_rows: Callable[[], list[tuple[str, ...]]],
    ) -> None:
        self._script = script
        self._known = dict(definitions)
        self._sites = sites
        self._base = base
        self._site_rows = site_rows
        self._changes = Changes()

    def run(self) -> Changes:
        """Raises ScriptError at the first statement that is wrong; nothing has changed then."""
        for statement in parse(self._script):
            self._changes.answers.append(self._check(statement))
        return self._changes

    def _check(self, statement: Statement) -> Answer:
        match statement:
            case CreateStream():
                return self._create_stream(statement)
            case CreateQuery():
                return self._create_query(statement)
            case Drop():
                return self._drop(statement)
            case Show():
                return self._show(statement.what)
            case Describe():
                return self._describe(self._find(statement.name, statement.name_span))
            case Explain():
                return self._explain(statement.target)

    def _create_stream(self, statement: CreateStream) -> Answer:
        self._check_new(statement.name, statement.name_span)
        names = self._sites.alive()
        default = names[0] if len(names) == 1 else None
        stream = bind_stream(statement, self._script, default_site=default, base=self._base)
        self._check_site(stream.site, statement.site_span or statement.name_span)
        answers = self._sites.any().call(
            "check_types", columns=[one.model_dump() for one in stream.columns]
        )
        columns = []
        for declared, answer in zip(statement.columns, answers, strict=True):
            if answer["type"] is None:
                raise self._script.error(
                    declared.type_span,
                    f"{declared.type} cannot be the type of a column: {answer['error']}",
                    "Use a Spark SQL type such as DOUBLE, BIGINT, STRING or TIMESTAMP.",
                )
            columns.append(Column(name=declared.name.text, type=answer["type"]))
        return self._add(stream.model_copy(update={"columns": tuple(columns)}))

    def _create_query(self, statement: CreateQuery) -> Answer:
        self._check_new(statement.name, statement.name_span)
        return self._add(self._bind(statement))

    def _bind(self, statement: CreateQuery) -> QueryDef:
        query = bind_query(
            statement, self._script, self._lookup, list(self._known), self._types, base=self._base
        )
        if statement.site_span:
            self._check_site(query.site, statement.site_span)
        return query

    def _types(
        self, columns: tuple[Column, ...], alias: str, expressions: tuple[str, ...]
    ) -> tuple[TypeAnswer, ...]:
        answers = self._sites.any().call(
            "analyse",
            columns=[one.model_dump() for one in columns],
            alias=alias,
            expressions=expressions,
        )
        return tuple(TypeAnswer(type=one["type"], error=one["error"]) for one in answers)

    def _add(self, definition: StreamDef | QueryDef) -> Answer:
        self._known[definition.name] = definition
        self._changes.add.append(definition)
        return Answer("line", f"{definition.kind} {definition.name} created at {definition.site}")

    def _drop(self, statement: Drop) -> Answer:
        found = self._lookup(statement.name)
        if found is None and statement.if_exists:
            return Answer("line", f"there is no {statement.kind} {statement.name}")
        found = self._find(statement.name, statement.name_span)
        if found.kind != statement.kind:
            raise self._script.error(
                statement.name_span,
                f"{found.name} is a {found.kind}",
                f"Write DROP {found.kind.upper()} {found.name}.",
            )
        self._check_unused(found, statement.name_span)
        del self._known[found.name]
        if found in self._changes.add:
            self._changes.add.remove(found)
        else:
            self._changes.drop.append(found.name)
        return Answer("line", f"{found.kind} {found.name} dropped")

    def _check_unused(self, found: StreamDef | QueryDef, span: Span) -> None:
        users = [
            one.name for one in self._known.values()
            if isinstance(one, QueryDef) and one.input == found.name
        ]  # fmt: skip
        if users:
            raise self._script.error(
                span, f"{found.name} is read by {', '.join(users)}", "Drop them first."
            )

    def _show(self, what: str) -> Answer:
        if what == "sites":
            columns = ("site", "address", "state")
            return Answer("table", columns=columns, rows=tuple(self._site_rows()))
        if what == "streams":
            rows = tuple(
                (one.name, one.site, show_call(one.source), _columns(one.columns))
                for one in self._known.values()
                if isinstance(one, StreamDef)
            )
            return Answer("table", columns=("stream", "site", "from", "columns"), rows=rows)
        names = ("query", "site", "reads", "into", "columns")
        queries = [one for one in self._known.values() if isinstance(one, QueryDef)]
        return Answer("table", columns=names, rows=tuple(_query_row(one) for one in queries))

    def _describe(self, found: StreamDef | QueryDef) -> Answer:
        rows = [(column.name, column.type) for column in found.columns]
        return Answer("table", text=found.text, columns=("column", "type"), rows=tuple(rows))

    def _explain(self, target: CreateQuery | Name) -> Answer:
        if isinstance(target, CreateQuery):
            query: StreamDef | QueryDef = self._bind(target)
        else:
            query = self._find(target.text, target.span)
        if isinstance(query, StreamDef):
            return self._describe(query)
        return Answer("text", explain(query, self._known.__getitem__))

    def _lookup(self, name: str) -> StreamDef | QueryDef | None:
        """Names are compared as Spark does, without regard to case."""
        found = self._known.get(name)
        if found is None:
            same = (one for key, one in self._known.items() if key.lower() == name.lower())
            found = next(same, None)
        return found

    def _find(self, name: str, span: Span) -> StreamDef | QueryDef:
        found = self._lookup(name)
        if found is None:
            raise self._script.error(
                span, f"unknown stream or query '{name}'", nearest(name, self._known, "There are")
            )
        return found

    def _check_new(self, name: str, span: Span) -> None:
        if self._lookup(name) is not None:
            raise self._script.error(
                span, f"{name} exists already", "Drop it first, or rename this."
            )

    def _check_site(self, site: str, span: Span) -> None:
        if site not in self._sites.names():
            remedy = nearest(site, self._sites.names(), "Known sites")
            raise self._script.error(span, f"unknown site '{site}'", remedy)
        if site not in self._sites.alive():
            raise self._script.error(
                span, f"site {site} is not reachable", "Start it, or choose another with AT."
            )


def _query_row(query: QueryDef) -> tuple[str, ...]:
    into = show_call(query.sink) if query.sink else ""
    return query.name, query.site, query.input, into, _columns(query.columns)


def _columns(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def sites_named(script: Script) -> list[str]:
    """The sites that a script's AT clauses name, in order; for running without a cluster file."""
    named = [
        statement.site
        for statement in parse(script)
        if isinstance(statement, (CreateStream, CreateQuery)) and statement.site
    ]
    return list(dict.fromkeys(named))
