"""What a script names that lies outside of it: sites, and what they would read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.coordinator.base.sites import PREPARE_S, Sites
from anabranch.errors import ConfigError, ScriptError
from anabranch.language.grammar.statements import CallNode, CreatePocket
from anabranch.language.source import Script, Span
from anabranch.link.messages import Check, DescribePocket
from anabranch.plan.catalog import AnyDef, QueryDef, Relation, StreamDef, TableDef
from anabranch.plan.places import Place, clash
from anabranch.plan.program import Submission
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
        """Raises ScriptError for one that is not there."""
        if site not in self._sites.alive():
            raise self._script.error(span, *self._sites.absence(site))

    def pocket(self, statement: CreatePocket, base: str) -> Submission:
        """What the class of a pocket says; a site runs its file to see."""
        site = statement.site.text if statement.site else None
        peer = self._sites.peer(site) if site else self._sites.any()
        asked = DescribePocket(statement.name, statement.class_, base)
        try:
            submitted = peer.send(asked, PREPARE_S)
        except ConfigError as error:
            raise self._script.error(statement.source.span, error.line()) from None
        return submitted.model_copy(update={"site": site}) if site else submitted

    def check_known(self, site: str, span: Span) -> None:
        """Raises ScriptError for one that nobody has heard of."""
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
        """Have the site look at what `call` names, while nothing has changed yet: the files that it
        means. Raises ScriptError if these are of no use, because of what `known` others do with
        them or because they are not the query's; and for options that are wrong. A file that is
        not there is no mistake in the text."""
        named = source.name if source else sink.query if sink else ""
        asked = Check((source,) if source else (), (sink,) if sink else ())
        try:
            found = self._sites.peer(site).send(asked, PREPARE_S)
            self._check_places(named, call, found.places, known)
            self.notes[named] = list(found.notes)
            for problem in found.problems:
                raise problem.error()
        except ConfigError as error:
            span = _blamed(call, error.message)
            raise self._script.error(span, error.message, error.remedy) from error
        return found.places

    def _check_places(
        self, name: str, call: CallNode, places: Sequence[Place], known: Mapping[str, AnyDef]
    ) -> None:
        """What one writes nobody else reads or writes: a stream would read what becomes of it, or
        a file hold two queries' results."""
        self._spans[name] = _path_span(call)
        for other in known.values():
            if other.name == name or not isinstance(other, StreamDef | TableDef | QueryDef):
                continue
            if found := clash(places, other.places):
                raise self._clash(name, call, other, *found)

    def _clash(
        self, name: str, call: CallNode, other: Relation, mine: Place, theirs: Place
    ) -> ScriptError:
        verb = "write" if mine.writes else "read"
        here = self._spans.get(other.name)
        where = f" ({self._script.place(here)})" if here else ", created before,"
        message = (
            f"{call.name}() would {verb} {mine.path}, which {other.kind} {other.name}{where}"
            f" {'writes' if theirs.writes else 'reads'}"
        )
        if theirs.path != mine.path:
            message += f" as {theirs.path}"
        remedy = f"Choose another path, or drop {other.name} first."
        error = self._script.error(self._spans[name], message, remedy)
        if here:
            error.excerpt = f"{self._script.excerpt(here)}\n{error.excerpt}"
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
