"""Running a script: every statement is checked before any of them changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from anabranch.coordinator.answers import Answer, Row, describe, show
from anabranch.coordinator.deploy import tasks
from anabranch.coordinator.outside import Outside
from anabranch.coordinator.sites import Sites, nearest
from anabranch.language.bind_sources import bind_aggregate, bind_stream, bind_table
from anabranch.language.binder import bind_query
from anabranch.language.parser import parse
from anabranch.language.source import Script, Span
from anabranch.language.statements import (
    CallNode,
    Create,
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Name,
    Show,
    Statement,
)
from anabranch.language.types import TypeAnswer
from anabranch.plan.catalog import AggregateDef, AnyDef, PocketDef, QueryDef, Relation
from anabranch.plan.explain import explain
from anabranch.plan.operators import Aggregate, Column
from anabranch.plan.rules import rewritten

__all__ = ["Answer", "Changes", "ScriptCheck", "sites_named"]

Definitions = dict[str, AnyDef]


@dataclass
class Changes:
    """What a checked script asks for."""

    answers: list[Answer] = field(default_factory=list)
    add: list[AnyDef] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)


class ScriptCheck:
    """Checks the statements of one script in order, each against what those before it made."""

    def __init__(
        self,
        script: Script,
        definitions: Definitions,
        sites: Sites,
        base: str,
        site_rows: Callable[[], list[Row]],
    ) -> None:
        self._script = script
        self._known = dict(definitions)
        queries = [one for one in definitions.values() if isinstance(one, QueryDef)]
        self._running = {node.name for query in queries for node in query.nodes}
        self._sites = sites
        self._outside = Outside(script, sites)
        self._base = base
        self._site_rows = site_rows
        self._changes = Changes()
        self._to_come: set[str] = set()

    def run(self) -> Changes:
        """Raises ScriptError at the first statement that is wrong; nothing has changed then."""
        statements = parse(self._script)
        self._to_come = {one.name.lower() for one in statements if isinstance(one, Create)}
        for statement in statements:
            self._changes.answers.append(self._check(statement))
        return self._changes

    def _check(self, statement: Statement) -> Answer:
        match statement:
            case CreateStream() | CreateTable():
                return self._create_source(statement)
            case CreateAggregate():
                return self._create_aggregate(statement)
            case CreateQuery():
                return self._create_query(statement)
            case Drop():
                return self._drop(statement)
            case Show():
                return self._show(statement.what)
            case Describe():
                return describe(self._find(statement.name, statement.name_span))
            case Explain():
                return self._explain(statement.target)

    def _create_source(self, statement: CreateStream | CreateTable) -> Answer:
        self._check_new(statement.name, statement.name_span)
        default = self._default_site(statement)
        if isinstance(statement, CreateStream):
            source: Relation = bind_stream(
                statement, self._script, default_site=default, base=self._base
            )
        else:
            source = bind_table(statement, self._script, default_site=default, base=self._base)
        self._outside.check_site(source.site, statement.site_span or statement.name_span)
        types = self._checked_types((one.type, one.type_span) for one in statement.columns)
        columns = tuple(
            Column(name=declared.name.text, type=type_)
            for declared, type_ in zip(statement.columns, types, strict=True)
        )
        source = source.model_copy(update={"columns": columns})
        if statement.source:
            self._outside.check(source.site, statement.source, source=source)
        return self._add(source)

    def _default_site(self, statement: CreateStream | CreateTable) -> str | None:
        """Where there is one site, that; what has no source can be anywhere."""
        names = sorted(self._sites.alive())
        anywhere = statement.source is None
        return names[0] if names and (anywhere or len(names) == 1) else None

    def _create_aggregate(self, statement: CreateAggregate) -> Answer:
        self._check_new(statement.name, statement.name_span)
        aggregate = bind_aggregate(statement, self._script, base=self._base)
        if self._is_function(statement.name):
            raise self._script.error(
                statement.name_span,
                f"{statement.name} is a function of Spark's",
                "Choose another name.",
            )
        *arguments, returns = self._checked_types(
            (one.text, one.span) for one in (*statement.arguments, statement.returns)
        )
        types = {"arguments": tuple(arguments), "type": returns}
        return self._add(aggregate.model_copy(update=types))

    def _is_function(self, name: str) -> bool:
        (answer,) = self._types((), (f"`{name}`()",))
        return "cannot resolve routine" not in answer.error

    def _checked_types(self, declared: Iterable[tuple[str, Span]]) -> tuple[str, ...]:
        """Types in Spark's spelling."""
        written = list(declared)
        columns = [Column(name=f"c{i}", type=type_) for i, (type_, _) in enumerate(written)]
        answers = self._sites.any().call(
            "check_types", columns=[one.model_dump() for one in columns]
        )
        for (type_, span), answer in zip(written, answers, strict=True):
            if answer["type"] is None:
                raise self._script.error(
                    span,
                    f"{type_} cannot be the type of a column: {answer['error']}",
                    "Use a Spark SQL type such as DOUBLE, BIGINT, STRING or TIMESTAMP.",
                )
        return tuple(answer["type"] for answer in answers)

    def _create_query(self, statement: CreateQuery) -> Answer:
        self._check_new(statement.name, statement.name_span)
        if not statement.name:
            console = CallNode("console", (), statement.span)
            sink = statement.sink or console
            statement = replace(statement, name=self._free_name(), sink=sink)
        query = self._bind(statement)
        for task in tasks([query], self._known | {query.name: query}):
            if task.sink and statement.sink:
                self._outside.check(task.site, statement.sink, sink=task)
        return self._add(query)

    def _free_name(self) -> str:
        """For a query that was given none."""
        names = (f"query_{number}" for number in count(1))
        return next(name for name in names if not self._lookup(name) and name not in self._to_come)

    def _bind(self, statement: CreateQuery) -> QueryDef:
        query = bind_query(
            statement, self._script, self._lookup, list(self._known), self._types, base=self._base
        )
        if statement.site_span:
            self._outside.check_site(query.site, statement.site_span)
        for name in _other_sites(statement):
            self._outside.check_site(name.text, name.span)
        return rewritten(query, self._relation, self._running)

    def _types(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool = False
    ) -> tuple[TypeAnswer, ...]:
        answers = self._sites.any().call(
            "analyse",
            columns=[one.model_dump() for one in columns],
            expressions=expressions,
            aggregate=aggregate,
        )
        return tuple(TypeAnswer(type=one["type"], error=one["error"]) for one in answers)

    def _add(self, definition: AnyDef) -> Answer:
        self._known[definition.name] = definition
        self._changes.add.append(definition)
        where = "" if isinstance(definition, AggregateDef) else f" at {definition.site}"
        return Answer("line", f"{definition.kind} {definition.name} created{where}")

    def _drop(self, statement: Drop) -> Answer:
        found = self._lookup(statement.name)
        if found is None and statement.if_exists:
            return Answer("line", f"there is no {statement.kind} {statement.name}")
        found = self._find(statement.name, statement.name_span)
        if found.kind != statement.kind:
            article = "an" if found.kind == "aggregate" else "a"
            raise self._script.error(
                statement.name_span,
                f"{found.name} is {article} {found.kind}",
                f"Write DROP {found.kind.upper()} {found.name}.",
            )
        self._check_unused(found, statement.name_span)
        self._take_off(found)
        text = f"{found.kind} {found.name} dropped"
        if isinstance(found, PocketDef) and (others := self._drop_made(found)):
            text += f", and with it {' and '.join(others)}"
        return Answer("line", text)

    def _take_off(self, found: AnyDef) -> None:
        del self._known[found.name]
        if found in self._changes.add:
            self._changes.add.remove(found)
        else:
            self._changes.drop.append(found.name)

    def _drop_made(self, pocket: PocketDef) -> list[str]:
        """What came with a pocket goes with it, unless others use it by now."""
        made = [self._known[name] for name in pocket.made if name in self._known]
        gone = [one for one in made if not any(_needs(user, one) for user in self._known.values())]
        for one in gone:
            self._take_off(one)
        return [f"{one.kind} {one.name}" for one in gone]

    def _check_unused(self, found: AnyDef, span: Span) -> None:
        users = [one.name for one in self._known.values() if _needs(one, found)]
        if users:
            verb = "used" if isinstance(found, AggregateDef) else "read"
            if any(isinstance(one, PocketDef) and one.output == found.name
                   for one in self._known.values()):  # fmt: skip
                verb = "filled or read"
            message = f"{found.name} is {verb} by {', '.join(users)}"
            raise self._script.error(span, message, "Drop them first.")

    def _show(self, what: str) -> Answer:
        if what == "sites":
            columns = ("site", "address", "state")
            return Answer("table", columns=columns, rows=tuple(self._site_rows()))
        return show(what, self._known.values())

    def _explain(self, target: CreateQuery | Name) -> Answer:
        if isinstance(target, CreateQuery):
            found: AnyDef = self._bind(target)
        else:
            found = self._find(target.text, target.span)
        if not isinstance(found, QueryDef):
            return describe(found)
        return Answer("text", explain(found, self._relation))

    def _relation(self, name: str) -> Relation:
        found = self._known[name]
        assert not isinstance(found, AggregateDef | PocketDef), "only relations are read"
        return found

    def _lookup(self, name: str) -> AnyDef | None:
        """Names are compared as Spark does, without regard to case."""
        found = self._known.get(name)
        if found is None:
            same = (one for key, one in self._known.items() if key.lower() == name.lower())
            found = next(same, None)
        return found

    def _find(self, name: str, span: Span) -> AnyDef:
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


def _needs(one: AnyDef, found: AnyDef) -> bool:
    """Whether `one` reads, fills or calls `found`."""
    if isinstance(one, PocketDef):
        return found.name in (*one.reads, one.output)
    if not isinstance(one, QueryDef):
        return False
    aggregates = (op for op in one.written.operators if isinstance(op, Aggregate))
    calls = [call.function for aggregate in aggregates for call in aggregate.calls if call.source]
    return found.name in (calls if isinstance(found, AggregateDef) else one.reads)


def sites_named(script: Script) -> list[str]:
    """The sites that a script's AT and ON name, in order; for running without a cluster file."""
    named: list[str] = []
    for statement in parse(script):
        if isinstance(statement, CreateStream | CreateTable | CreateQuery) and statement.site:
            named.append(statement.site)
        if isinstance(statement, CreateQuery):
            named += [name.text for name in _other_sites(statement)]
    return list(dict.fromkeys(named))


def _other_sites(statement: CreateQuery) -> list[Name]:
    """Those of the query's sink and standby, if it names them."""
    standby = statement.standby.on if statement.standby else None
    return [name for name in (statement.sink_site, standby) if name]
