"""What a script names that lies outside of it: sites, what they would read and write, and who
needs a definition that is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from anabranch.config.model import check_site_name
from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.errors import ConfigError, ScriptError
from anabranch.language.grammar.parser import parse
from anabranch.language.grammar.statements import (
    CallNode,
    CreateAggregate,
    CreatePocket,
    CreateQuery,
    CreateStream,
    CreateTable,
    Explain,
    Name,
    Statement,
)
from anabranch.language.source import Script, Span
from anabranch.link.messages import Check, DescribePocket
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
from anabranch.plan.operators import Aggregate
from anabranch.plan.places import Place, clash
from anabranch.plan.spec import Submission
from anabranch.plan.tasks import TaskSpec


class Outside:
    def __init__(self, script: Script, sites: Sites) -> None:
        self._script = script
        self._sites = sites
        self._spans: dict[str, Span] = {}
        """Where this script says what a definition reads or writes."""
        self.notes: dict[str, list[str]] = {}
        """Query → what is to be told of its sink."""

    def check_site(self, site: str, span: Span) -> None:
        """Raises ScriptError for a site that is not there."""
        if site not in self._sites.alive():
            raise self._script.error(span, *self._sites.absence(site))

    def pocket(self, statement: CreatePocket, base: str) -> Submission:
        """The pocket as its class describes it; a site runs its file to see."""
        site = statement.site.text if statement.site else None
        peer = self._sites.peer(site) if site else self._sites.any()
        request = DescribePocket(statement.name, statement.class_, base)
        try:
            submitted = peer.send(request, PREPARE_S)
        except ConfigError as error:
            raise self._script.error(statement.source.span, error.line()) from None
        return submitted.model_copy(update={"site": site}) if site else submitted

    def check_known(self, site: str, span: Span) -> None:
        """Raises ScriptError for a site that nobody has heard of."""
        if not self._sites.heard_of(site):
            raise self._script.error(span, *self._sites.absence(site))

    def check(
        self,
        site: str,
        call: CallNode,
        known: Mapping[str, AnyDef],
        *,
        source: StreamDef | TableDef | None = None,
        sink: TaskSpec | None = None,
    ) -> tuple[Place, ...]:
        """Lets the site look at what `call` names, while nothing has changed yet; returns the files
        it uses. Raises ScriptError for wrong options, and if the files cannot be used, because of
        what `known` others do with them or because they are not the query's. A missing file is no
        mistake in the text.
        """
        named = source.name if source else sink.query if sink else ""
        request = Check((source,) if source else (), (sink,) if sink else ())
        try:
            checked = self._sites.peer(site).send(request, PREPARE_S)
            self._check_places(named, call, checked.places, known)
            self.notes[named] = list(checked.notes)
            for problem in checked.problems:
                raise problem.error()
        except ConfigError as error:
            span = _blamed(call, error.message)
            raise self._script.error(span, error.message, error.remedy) from error
        return checked.places

    def _check_places(
        self, name: str, call: CallNode, places: Sequence[Place], known: Mapping[str, AnyDef]
    ) -> None:
        """Raises if somebody writes what another reads or writes: a stream would read its own
        results, or a file hold two queries' results.
        """
        self._spans[name] = _path_span(call)
        for other in known.values():
            if other.name == name or not isinstance(other, StreamDef | TableDef | QueryDef):
                continue
            if clashing := clash(places, other.places):
                raise self._clash(name, call, other, *clashing)

    def _clash(
        self, name: str, call: CallNode, other: Relation, mine: Place, theirs: Place
    ) -> ScriptError:
        verb = "write" if mine.writes else "read"
        span = self._spans.get(other.name)
        where = f" ({self._script.place(span)})" if span else ", created before,"
        message = (
            f"{call.name}() would {verb} {mine.path}, which {other.kind} {other.name}{where}"
            f" {'writes' if theirs.writes else 'reads'}"
        )
        if theirs.path != mine.path:
            message += f" as {theirs.path}"
        remedy = f"Choose another path, or drop {other.name} first."
        error = self._script.error(self._spans[name], message, remedy)
        if span:
            error.excerpt = f"{self._script.excerpt(span)}\n{error.excerpt}"
        return error


def _path_span(call: CallNode) -> Span:
    return next((one.span for one in call.options if one.name == "path"), call.span)


def _blamed(call: CallNode, message: str) -> Span:
    """The option that `message` names, or else the call."""
    named = [
        one.span
        for one in call.options
        if f"'{one.name}'" in message or f" {one.name} = " in message
    ]
    return named[0] if named else call.span


def sites_named(script: Script) -> list[str]:
    """The sites that a script's AT and ON name, in order; for running without a cluster file."""
    named = [name.text for statement in parse(script) for name in _named(statement)]
    return list(dict.fromkeys(named))


def check_site_names(script: Script) -> None:
    """Raises ScriptError, at its place, for a name that no site may have."""
    for statement in parse(script):
        for name in _named(statement):
            try:
                check_site_name(name.text)
            except ConfigError as error:
                raise script.error(name.span, error.message, error.remedy) from None


def _named(statement: Statement) -> list[Name]:
    """The sites that a statement names."""
    if isinstance(statement, CreateQuery):
        return [*statement.at, *statement.never, *sites_that_run(statement)]
    if isinstance(statement, CreatePocket):
        return [statement.site] if statement.site else []
    if isinstance(statement, CreateStream | CreateTable) and statement.site:
        return [Name(statement.site, statement.site_span or statement.span)]
    return []


def sites_that_run(statement: CreateQuery) -> list[Name]:
    """The site that it is pinned to, and those of its sink, standby and stage, if it names them."""
    standby = statement.standby.on if statement.standby else None
    pinned = statement.at[0] if len(statement.at) == 1 else None
    staged = statement.stage.sites if statement.stage else ()
    return [name for name in (pinned, statement.sink_site, standby, *staged) if name]


def sites_needed(script: Script, known: Mapping[str, AnyDef], starting: Iterable[str]) -> set[str]:
    """Those of the sites that are being started without which the statements cannot be carried out:
    the sites they name, those they read from, and all sites where they leave the choice open.
    """
    waited = set(starting)
    relations = {name.lower(): one for name, one in known.items()}
    named: set[str] = set()
    for statement in map(_unwrapped, parse(script)):
        if _anywhere(statement):
            return waited
        named |= {name.text for name in _named(statement)}
        if isinstance(statement, CreateQuery):
            read = (relations.get(one.name.text.lower()) for one in statement.select.sources)
            named |= {one.site for one in read if one and not isinstance(one, AggregateDef)}
    return named & waited


def asks_types(script: Script) -> bool:
    """Whether some site has to say the types that the statements use; any site can."""
    asking = (CreateAggregate, CreatePocket, CreateQuery, CreateStream, CreateTable)
    return any(isinstance(_unwrapped(one), asking) for one in parse(script))


def _unwrapped(statement: Statement) -> Statement:
    """The statement that is explained: it needs the same sites as if it were created."""
    if isinstance(statement, Explain) and isinstance(statement.target, CreateQuery):
        return statement.target
    return statement


def _anywhere(statement: Statement) -> bool:
    """Whether it goes to a site that it does not name."""
    if isinstance(statement, CreateStream | CreateTable | CreatePocket):
        return statement.site is None
    return False


def needs(user: AnyDef, definition: AnyDef) -> bool:
    """Whether `user` reads, fills or calls `definition`."""
    if isinstance(user, PocketDef):
        return definition.name in (*user.reads, user.output)
    if not isinstance(user, QueryDef):
        return False
    aggregates = (op for op in user.written.operators if isinstance(op, Aggregate))
    calls = [call.function for aggregate in aggregates for call in aggregate.calls if call.source]
    return definition.name in (
        calls if isinstance(definition, AggregateDef) else (*user.reads, *user.stages)
    )


def users(definition: AnyDef, known: Mapping[str, AnyDef]) -> list[AnyDef]:
    """Those that need `definition` or what goes with it, as a user knows them: a pocket for what
    came with it, a query for its workers. The stream that a pocket fills may stay without it.
    """
    gone = [definition, *(known[name] for name in _going_with(definition) if name in known)]
    direct = (one for one in known.values() if any(needs(one, it) for it in gone))
    named = {one.name: one for one in (_dropped_as(user, known) for user in direct)}
    return [one for one in named.values() if one not in gone]


def flows(definition: AnyDef, known: Collection[AnyDef]) -> bool:
    """Whether tuples of it may have passed already: a source waits for its first reader."""
    if isinstance(definition, StreamDef) and definition.source:
        return any(needs(user, definition) for user in known)
    return isinstance(definition, StreamDef | QueryDef)


def droppable(definition: AnyDef, known: Mapping[str, AnyDef]) -> list[AnyDef]:
    """All that must be dropped before `definition`, in an order in which that is possible."""
    order: dict[str, AnyDef] = {}

    def visit(definition_: AnyDef) -> None:
        for user in users(definition_, known):
            if user.name not in order:
                visit(user)
                order[user.name] = user

    visit(definition)
    return list(order.values())


def _going_with(definition: AnyDef) -> Iterator[str]:
    if isinstance(definition, QueryDef):
        yield from definition.stages
    elif isinstance(definition, PocketDef):
        yield from (name for name in definition.made if name != definition.output)
    elif isinstance(definition, ApproximateDef):
        yield from (*(worker.query for worker in definition.workers), *definition.leaving)


def _dropped_as(definition: AnyDef, known: Mapping[str, AnyDef]) -> AnyDef:
    if isinstance(definition, QueryDef) and definition.part_of:
        return known.get(definition.part_of, definition)
    pockets = (it for it in known.values() if isinstance(it, PocketDef))
    return next((pocket for pocket in pockets if definition.name in pocket.made), definition)
