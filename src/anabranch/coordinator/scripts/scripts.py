"""Runs a script: every statement is checked before any of them changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from anabranch.connectors import SINKS
from anabranch.coordinator.base.secrets import Kept
from anabranch.coordinator.base.sites import Sites, nearest
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.analysis import (
    SparkTypes,
    Types,
    asked,
    declared_types,
    is_function,
    reported,
)
from anabranch.coordinator.scripts.analysis import explained as plans_explained
from anabranch.coordinator.scripts.approximate import (
    ApproximateScripts,
    Assignment,
    Reported,
)
from anabranch.coordinator.scripts.pockets import changes_for
from anabranch.coordinator.scripts.references import (
    Outside,
    droppable,
    flows,
    needs,
    sites_that_run,
    users,
)
from anabranch.coordinator.scripts.replies import Answer, Row, ScriptChanges, describe, show
from anabranch.coordinator.scripts.secrets import ScriptSecrets
from anabranch.coordinator.scripts.stages import StageChoice
from anabranch.errors import ConfigError, PlacementError, SinkError
from anabranch.language.binding.binder import bind_query
from anabranch.language.binding.sources import bind_aggregate, bind_shed, bind_stream, bind_table
from anabranch.language.grammar.parser import parse
from anabranch.language.grammar.statements import (
    CallNode,
    Create,
    CreateAggregate,
    CreatePocket,
    CreateQuery,
    CreateSecret,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Name,
    Resume,
    SelectState,
    Show,
    Statement,
)
from anabranch.language.source import Script, Span, listed
from anabranch.link.messages import GoOnWithout
from anabranch.plan.approximate import worker_queries
from anabranch.plan.catalog import (
    AggregateDef,
    AnyDef,
    ApproximateDef,
    PocketDef,
    QueryDef,
    Relation,
    StreamDef,
    TableDef,
)
from anabranch.plan.definitions import tasks, unprotected_sink
from anabranch.plan.expressions import spelled
from anabranch.plan.operators import Call, Column
from anabranch.plan.rules import rewritten
from anabranch.plan.spec import Submission
from anabranch.plan.staging import staged
from anabranch.plan.tasks import tasks_of
from anabranch.plan.tree import explain
from anabranch.standby.detector import impossible, noticed, reservation

__all__ = ["Answer", "ScriptChanges", "ScriptCheck"]

Definitions = dict[str, AnyDef]


class ScriptCheck:
    """Checks the statements of one script in order, each against the results of those before it."""

    def __init__(
        self,
        script: Script,
        definitions: Definitions,
        sites: Sites,
        base: str,
        site_rows: Callable[[], list[Row]],
        placing: Placing,
        stands_by: Callable[[str], str | None] = lambda query: None,
        heartbeat_us: int = 0,
        missed: int = 1,
        unnamed: str = "",
        types: Types | None = None,
        reported: Reported = lambda query: None,
        assignment: Assignment = lambda *asked: (),
        secrets: Mapping[str, Kept] | None = None,
        placed: Mapping[str, AnyDef] | None = None,
    ) -> None:
        """`stands_by`: query → the site that would take it over now. `unnamed`: what a query
        without a name is called, instead of a name of ours and a sink. `secrets`: those that
        are there, if that is known. `placed`: of a part of a script, what the whole has placed."""
        self._script = script
        self._known = dict(definitions)
        queries = [one for one in definitions.values() if isinstance(one, QueryDef)]
        self._running = {node.name: node.site for query in queries for node in query.nodes}
        self._placing = placing
        self._sites = sites
        self._outside = Outside(script, sites)
        self._approximates = ApproximateScripts(script, self._outside, sites, reported, assignment)
        self._secrets = ScriptSecrets(script, secrets, base)
        self._stages = StageChoice(script, sites, self._secrets)
        self._base = base
        self._site_rows = site_rows
        self._stands_by = stands_by
        self._beats = heartbeat_us, missed
        self._unnamed = unnamed
        self._types: Types = types or SparkTypes(sites)
        self._changes = ScriptChanges()
        self._to_come: set[str] = set()
        self._placed = placed
        self._part = placed is not None

    def run(self, pockets: Sequence[Submission] = ()) -> ScriptChanges:
        """Raises ScriptError at the first statement that is wrong; nothing has changed then. The
        `pockets` come with the script, after its statements.
        """
        statements = parse(self._script)
        self._to_come = {one.name.lower() for one in statements if isinstance(one, Create)}
        alone = next((one for one in statements if isinstance(one, Resume)), None)
        if alone and len(statements) > 1:
            raise self._script.error(alone.span, "RESUME stands alone", "Run it by itself.")
        before = dict(self._known)
        self._check_all(statements, pockets)
        if not self._part and self._place():
            self._known, self._changes = before, ScriptChanges()
            self._secrets.begin_again()
            self._check_all(statements, pockets)
        self._changes.keep |= self._secrets.keep
        self._changes.forget += self._secrets.forget
        return self._changes

    def _place(self) -> bool:
        """Whether something has to be where it was not bound."""
        found = self._placing.together(
            self._changes.free, self._changes.add, self._known, self._running
        )
        self._placed = {name: one for name, one in found.items() if one != self._known[name]}
        return bool(self._placed)

    def _site_of(self, name: str) -> str | None:
        """Where the stream or the pocket has to be; None as long as nobody has said."""
        found = (self._placed or {}).get(name)
        return found.site if isinstance(found, StreamDef | PocketDef) else None

    def _check_all(self, statements: Sequence[Statement], pockets: Sequence[Submission]) -> None:
        for statement in statements:
            self._changes.answers.append(self._check(statement))
        for submitted in pockets:
            self._add_pocket(submitted)

    def explain(self, *, asks_sites: bool = True) -> Answer:
        """How the one query of the script runs or would run, whether it says EXPLAIN or not. If no
        site may be asked, it is an existing query.
        """
        match statements := parse(self._script):
            case [Explain(target=Name() as target)]:
                return self._explain(target, asks_sites=asks_sites)
            case [Explain(target=CreateQuery() as query)] | [CreateQuery() as query]:
                if asks_sites:
                    return self._explain(query)
                raise self._script.error(
                    query.span,
                    "what is not there yet is not explained to a reader",
                    "Write EXPLAIN and the name of a query; or send the system's own token.",
                )
        wrong = statements[1 if len(statements) > 1 else 0].span if statements else Span(0, 0)
        message = f"one query is explained at a time, these are {len(statements)} statements"
        if len(statements) == 1:
            message = "this is no query to explain"
        remedy = "Write one SELECT, CREATE QUERY, or EXPLAIN with the name of a query."
        raise self._script.error(wrong, message, remedy)

    def _check(self, statement: Statement) -> Answer:
        match statement:
            case CreateStream() | CreateTable():
                return self._create_source(statement)
            case CreateAggregate():
                return self._create_aggregate(statement)
            case CreatePocket():
                return self._create_pocket(statement)
            case CreateQuery():
                return self._create_query(statement)
            case CreateSecret():
                return self._secrets.create(statement)
            case Drop(kind="secret"):
                return self._secrets.drop(statement, self._known)
            case Drop():
                return self._drop(statement)
            case Resume():
                return self._resume(statement)
            case Show(what="secrets"):
                return self._secrets.show()
            case Show():
                return self._show(statement.what)
            case Describe():
                return describe(self._find(statement.name, statement.name_span))
            case Explain():
                return self._explain(statement.target)
            case SelectState():
                return self._state(statement)

    def _create_source(self, statement: CreateStream | CreateTable) -> Answer:
        self._check_new(statement.name, statement.name_span)
        default = self._default_site(statement)
        if isinstance(statement, CreateStream):
            source: StreamDef | TableDef = bind_stream(
                statement, self._script, default_site=default, base=self._base
            )
        else:
            source = bind_table(statement, self._script, default_site=default, base=self._base)
        if isinstance(source, StreamDef) and source.free:
            self._changes.free.add(source.name)
        self._outside.check_site(source.site, statement.site_span or statement.name_span)
        written = [(one.type, one.type_span) for one in statement.columns]
        types = declared_types(self._script, self._types, written)
        columns = tuple(
            Column(name=declared.name.text, type=type_)
            for declared, type_ in zip(statement.columns, types, strict=True)
        )
        source = source.model_copy(update={"columns": columns})
        if isinstance(statement, CreateStream) and statement.shed and isinstance(source, StreamDef):
            shed = bind_shed(statement.shed, source, self._script, self._types)
            source = source.model_copy(update={"shed": shed})
        if statement.source:
            whole = self._secrets.filled(source, statement.source.span)
            places = self._outside.check(source.site, statement.source, self._known, source=whole)
            source = source.model_copy(update={"places": places})
        return self._add(source)

    def _default_site(self, statement: CreateStream | CreateTable) -> str | None:
        """The only site, if there is one; a stream without a source can be anywhere."""
        names = sorted(self._sites.alive())
        anywhere = statement.source is None
        usual = names[0] if names and (anywhere or len(names) == 1) else None
        return self._site_of(statement.name) or usual

    def _create_aggregate(self, statement: CreateAggregate) -> Answer:
        self._check_new(statement.name, statement.name_span)
        aggregate = bind_aggregate(statement, self._script, base=self._base)
        if is_function(self._types, statement.name):
            raise self._script.error(
                statement.name_span,
                f"{statement.name} is a function of Spark's",
                "Choose another name.",
            )
        written = [(one.text, one.span) for one in (*statement.arguments, statement.returns)]
        *arguments, returns = declared_types(self._script, self._types, written)
        types = {"arguments": tuple(arguments), "type": returns}
        return self._add(aggregate.model_copy(update=types))

    def _create_pocket(self, statement: CreatePocket) -> Answer:
        """Creates a pocket. Its class says what it is, and a site reads the class: its own site if
        it is named.
        """
        self._check_new(statement.name, statement.name_span)
        if statement.site:
            self._outside.check_site(statement.site.text, statement.site.span)
        pocket, others = self._add_pocket(self._outside.pocket(statement, self._base))
        with_it = " and ".join(f"{one.kind} {one.name}" for one in others)
        made = f", and with it {with_it}" if with_it else ""
        return Answer("line", f"pocket {pocket.name} created at {pocket.site}{made}")

    def _add_pocket(self, submitted: Submission) -> tuple[PocketDef, list[AnyDef]]:
        """The pocket, and what is added with it."""
        site = self._site_of(submitted.name)
        free = self._changes.free | self._untouched()
        names = self._sites.names()
        changes, pocket = changes_for(submitted, self._known, names, self._inner, free, site)
        self._changes.keep |= changes.keep
        self._changes.free |= changes.free
        for one in changes.add:
            self._add(one)
        self._fetch(pocket)
        self._add(pocket)
        return pocket, changes.add

    def _untouched(self) -> set[str]:
        """Streams that were there before, could be elsewhere, and that nothing has come to and
        nobody reads."""
        return {
            one.name
            for one in self._known.values()
            if isinstance(one, StreamDef)
            and one.free
            and one not in self._changes.add
            and not users(one, self._known)
            and not self._rows(one)
        }

    def _rows(self, stream: StreamDef) -> int:
        record = self._sites.record(stream.site)
        report = record.report if record else None
        sources = report.sources if report else ()
        return sum(one.rows for one in sources if one.stream == stream.name)

    def _fetch(self, pocket: PocketDef) -> None:
        """The stream that it fills, if that was there before and is elsewhere: it is made anew."""
        stream = self._known[pocket.output]
        assert isinstance(stream, StreamDef)
        if stream in self._changes.add:
            return
        if stream.name in self._untouched():
            self._changes.free.add(stream.name)
        if stream.site != pocket.site:
            self._take_off(stream)
            self._add(stream.model_copy(update={"site": pocket.site, "born": 0}))
            self._changes.free.add(stream.name)

    def _inner(self, script: Script, known: Definitions) -> ScriptChanges:
        """The statements in a pocket's class, checked as if they stood here."""
        return ScriptCheck(
            script,
            known,
            self._sites,
            self._base,
            self._site_rows,
            self._placing,
            heartbeat_us=self._beats[0],
            missed=self._beats[1],
            types=self._types,
            secrets=self._secrets.known,
            placed=self._placed or {},
        ).run()

    def _create_query(self, statement: CreateQuery) -> Answer:
        self._check_new(statement.name, statement.name_span)
        if not statement.name:
            console = None if self._unnamed else CallNode("console", (), statement.span)
            name = self._unnamed or self._free_name()
            statement = replace(statement, name=name, sink=statement.sink or console)
        if statement.approximate:
            return self._create_approximate(statement)
        query, results = self._bind(statement)
        query = self._check_sink(statement, query, results)
        for result in results:
            self._add(result)
        answer = self._add(query)
        notes = [
            *self._outside.notes.get(query.name, ()),
            unprotected_sink(query, self._known),
            self._begins_late(query),
        ]
        return replace(answer, text="\n".join([answer.text, *filter(None, notes)]))

    def _begins_late(self, query: QueryDef) -> str:
        """What it misses of streams that flow already; empty if it misses nothing."""
        before = [one for one in self._known.values() if one not in self._changes.add]
        live = {port.stream for port in query.written.inputs if not port.past}
        flow = [one.name for one in before if one.name in live and flows(one, before)]
        if not flow or self._unnamed:
            return ""
        return f"  it sees what comes to {listed(flow, 'and')} from now on, and nothing of before"

    def _create_approximate(self, statement: CreateQuery) -> Answer:
        definition = self._bind_approximate(statement)
        for worker in worker_queries(definition):
            query = rewritten(worker, self._relation, self._running)
            self._check_sink(statement, query, [])
            self._add(query)
        self._add(definition)
        sites = ", ".join(worker.site for worker in definition.workers)
        return Answer("line", f"query {definition.name} created, its keys split over {sites}")

    def _bind_approximate(self, statement: CreateQuery) -> ApproximateDef:
        query = self._understood(statement)
        return self._approximates.bind(statement, query, self._known)

    def _check_sink(
        self, statement: CreateQuery, query: QueryDef, results: list[StreamDef]
    ) -> QueryDef:
        """The query with the places that it writes to."""
        definitions: list[AnyDef] = [query, *results]
        for task in tasks([query], self._known | {one.name: one for one in definitions}):
            if task.sink and statement.sink:
                whole = self._secrets.filled(task, statement.sink.span)
                places = self._outside.check(task.site, statement.sink, self._known, sink=whole)
                query = query.model_copy(update={"places": places})
        return query

    def _free_name(self) -> str:
        """A name for a query without one."""
        names = (f"query_{number}" for number in count(1))
        return next(name for name in names if not self._lookup(name) and name not in self._to_come)

    def _bind(self, statement: CreateQuery) -> tuple[QueryDef, list[StreamDef]]:
        """The query, and the streams of its stage if it has one."""
        there = (self._placed or {}).get(statement.name or "")
        if isinstance(there, QueryDef):
            self._changes.free.add(there.name)
            return there, []
        query = self._understood(statement)
        for name in sites_that_run(statement):
            self._outside.check_site(name.text, name.span)
        for name in (*statement.at, *statement.never):
            self._outside.check_known(name.text, name.span)
        if statement.standby and (wrong := impossible(statement.standby.asked, *self._beats)):
            raise self._script.error(statement.standby.span, *wrong)
        stage, why = self._stages.choose(query, statement.stage, self._known)
        if stage:
            return staged(query, stage, self._relation, why)
        try:
            plain = self._placing.begin(query, self._known, self._running)
        except PlacementError as error:
            raise self._script.error(statement.span, error.message, error.remedy) from None
        if not plain.pinned:
            self._changes.free.add(plain.name)
        return plain.model_copy(update={"stage_why": why}), []

    def _understood(self, statement: CreateQuery) -> QueryDef:
        query = bind_query(
            statement, self._script, self._lookup, list(self._known), self._types, base=self._base
        )
        # A sink that is only where sites are is refused there, or stays there.
        sink = SINKS.get(statement.sink.name) if statement.sink else None
        return query.model_copy(update={"sink_shared": bool(sink and sink.shared)})

    def _add(self, whole: AnyDef) -> Answer:
        definition = self._secrets.sealed(whole)
        self._known[definition.name] = definition
        self._changes.add.append(definition)
        where = "" if isinstance(definition, AggregateDef) else f" at {definition.site}"
        standby = definition.standby if isinstance(definition, QueryDef) else None
        but = reservation(standby, *self._beats) if standby else ""
        text = f"{definition.kind} {definition.name} created{where}"
        return Answer("line", f"{text}. {but}" if but else text)

    def _drop(self, statement: Drop) -> Answer:
        definition = self._lookup(statement.name)
        if definition is None and statement.if_exists:
            return Answer("line", f"there is no {statement.kind} {statement.name}")
        if definition is None:
            same = [one.name for one in self._known.values() if one.kind == statement.kind]
            remedy = nearest(statement.name, same, "There are")
            message = f"there is no {statement.kind} {statement.name}"
            raise self._script.error(statement.name_span, message, remedy)
        if isinstance(definition, QueryDef) and definition.part_of:
            message = f"{definition.name} is a worker of {definition.part_of}"
            raise self._script.error(
                statement.name_span, message, f"Write DROP QUERY {definition.part_of}."
            )
        if definition.kind != statement.kind and not (
            isinstance(definition, ApproximateDef) and statement.kind == "query"
        ):
            article = "an" if definition.kind == "aggregate" else "a"
            raise self._script.error(
                statement.name_span,
                f"{definition.name} is {article} {definition.kind}",
                f"Write DROP {definition.kind.upper()} {definition.name}.",
            )
        self._check_unused(definition, statement.name_span)
        self._take_off(definition)
        text = f"{statement.kind} {definition.name} dropped"
        if isinstance(definition, QueryDef | ApproximateDef) and definition.sink:
            text += _stays(definition.sink)
        if isinstance(definition, PocketDef) and (others := self._drop_made(definition)):
            text += f", and with it {' and '.join(others)}"
        return Answer("line", text)

    def _resume(self, statement: Resume) -> Answer:
        """Where the sink is they know what it lacks, and refuse anything else."""
        definition = self._find(statement.name, statement.name_span)
        sinks = [one for one in tasks([definition], self._known) if one.sink]
        if not sinks:
            raise self._script.error(
                statement.name_span,
                f"{definition.name} is no query that writes anywhere",
                "`anabranch status` names the one that waits.",
            )
        (sink,) = sinks
        first, last = statement.first, statement.last
        self._changes.give_up = sink.site, GoOnWithout(sink.name, first, last)
        text = f"query {definition.name} goes on without its results {first:,} to {last:,}"
        return Answer("line", text)

    def _take_off(self, definition: AnyDef) -> None:
        del self._known[definition.name]
        self._changes.free.discard(definition.name)
        if definition in self._changes.add:
            self._changes.add.remove(definition)
        else:
            self._changes.drop.append(definition.name)
        if isinstance(definition, QueryDef):
            for stream in definition.stages:
                self._take_off(self._known[stream])
        if isinstance(definition, ApproximateDef):
            for query in (*(worker.query for worker in definition.workers), *definition.leaving):
                self._take_off(self._known[query])

    def _drop_made(self, pocket: PocketDef) -> list[str]:
        """Drops what came with a pocket, unless others use it by now."""
        definitions = [self._known[name] for name in pocket.made if name in self._known]
        gone = [
            one for one in definitions if not any(needs(user, one) for user in self._known.values())
        ]
        for definition in gone:
            self._take_off(definition)
        return [f"{one.kind} {one.name}" for one in gone]

    def _check_unused(self, definition: AnyDef, span: Span) -> None:
        named = [] if isinstance(definition, PocketDef) else users(definition, self._known)
        if named:
            verb = "used" if isinstance(definition, AggregateDef) else "read"
            if any(
                isinstance(one, PocketDef) and one.output == definition.name
                for one in self._known.values()
            ):
                verb = "filled or read"
            message = f"{definition.name} is {verb} by {', '.join(one.name for one in named)}"
            first = droppable(definition, self._known)
            drops = " ".join(f"DROP {_word(one)} {spelled(one.name)};" for one in first)
            raise self._script.error(span, message, f"Drop them first: {drops}")

    def _show(self, what: str) -> Answer:
        if what == "sites":
            columns = ("site", "address", "state")
            return Answer("table", columns=columns, rows=tuple(self._site_rows()))
        return show(what, self._known.values())

    def _explain(self, target: CreateQuery | Name, *, asks_sites: bool = True) -> Answer:
        results: list[StreamDef] = []
        if isinstance(target, CreateQuery) and target.approximate:
            return Answer("text", self._approximates.explain(self._bind_approximate(target)))
        if isinstance(target, CreateQuery):
            query, results = self._bind(target)
            known = {**self._known, query.name: query}
            free, added = self._changes.free, [*self._changes.add, query]
            there = self._placing.together(free, added, known, self._running).get(query.name)
            free.discard(query.name)
            query = there if isinstance(there, QueryDef) else query
            with suppress(SinkError):  # what is not there is no mistake in the text
                self._check_sink(target, query, results)
            definition: AnyDef = query
        else:
            definition = self._find(target.text, target.span)
        if isinstance(definition, ApproximateDef):
            return Answer("text", self._approximates.explain(definition))
        if not isinstance(definition, QueryDef):
            return describe(definition)
        results_ = {one.name: one for one in results}
        notes = self._placing.notes(self._known | results_ | {definition.name: definition})
        text = explain(definition, lambda name: results_.get(name) or self._relation(name), notes)
        specs = tasks_of(definition, lambda name: results_.get(name) or self._relation(name))
        plans_of = asked(self._sites) if asks_sites else reported(self._sites)
        if plans := plans_explained(plans_of, specs):
            text += f"\n\n{plans}"
        if definition.standby:
            text += f"\n\nThe death of its site is {noticed(definition.standby, *self._beats)}."
        if definition.standby and isinstance(target, Name) and definition not in self._changes.add:
            text += f" {self._now(definition)}"
        return Answer("text", text)

    def _now(self, query: QueryDef) -> str:
        """Where the query runs now: after failures that may differ from what was asked."""
        standby = self._stands_by(query.name)
        by = f"{standby} stands by" if standby else "no site stands by"
        moved = f", written for {query.written.site}" if query.site != query.written.site else ""
        return f"Now: {query.name} runs at {query.site}{moved}; {by}."

    def _state(self, statement: SelectState) -> Answer:
        definition = self._find(statement.name.text, statement.name.span)
        if (
            not isinstance(definition, QueryDef)
            or not definition.stages
            or definition in self._changes.add
        ):
            raise self._script.error(
                statement.name.span, f"{definition.name} is no stage that runs", "EXPLAIN says why."
            )
        try:
            answer = self._stages.state(
                definition, self._relation(definition.stages[0]).site, statement
            )
        except ConfigError as error:
            raise self._script.error(statement.span, error.message, error.remedy) from error
        return answer

    def _relation(self, name: str) -> Relation:
        definition = self._known[name]
        assert not isinstance(definition, AggregateDef | ApproximateDef | PocketDef), (
            "only relations are read"
        )
        return definition

    def _lookup(self, name: str) -> AnyDef | None:
        """The definition of this name. Names are compared as Spark does, without regard to case."""
        definition = self._known.get(name)
        if definition is None:
            same = (one for key, one in self._known.items() if key.lower() == name.lower())
            definition = next(same, None)
        return definition

    def _find(self, name: str, span: Span) -> AnyDef:
        definition = self._lookup(name)
        if definition is None:
            raise self._script.error(
                span, f"unknown stream or query '{name}'", nearest(name, self._known, "There are")
            )
        return definition

    def _check_new(self, name: str, span: Span) -> None:
        if self._lookup(name) is not None:
            raise self._script.error(
                span, f"{name} exists already", "Drop it first, or rename this."
            )


def _word(definition: AnyDef) -> str:
    """The word that statements use for it."""
    return "QUERY" if isinstance(definition, ApproximateDef) else definition.kind.upper()


def _stays(sink: Call) -> str:
    """What remains of a query that is dropped."""
    if sink.name == "postgres":
        return f"; its rows in the table {sink.options.get('table')} stay"
    return ""
