"""What a script names that lies outside of it: sites, and what they would read and write."""

from __future__ import annotations

from anabranch.coordinator.deploy import PREPARE_S
from anabranch.coordinator.sites import Sites, nearest
from anabranch.errors import ConfigError
from anabranch.language.source import Script, Span
from anabranch.language.statements import CallNode
from anabranch.plan.catalog import Relation
from anabranch.plan.tasks import TaskSpec


class Outside:
    def __init__(self, script: Script, sites: Sites) -> None:
        self._script = script
        self._sites = sites

    def check_site(self, site: str, span: Span) -> None:
        """Raises ScriptError for one that is not there."""
        if site in self._sites.alive():
            return
        if site in self._sites.names():
            problem, remedy = f"site {site} is not reachable", "Start it, or choose another."
        elif site in self._sites.expected:
            problem = f"site {site} has not joined yet"
            remedy = f"Start it there: anabranch site {site} --coordinator …"
        else:
            problem = f"unknown site '{site}'"
            known = {*self._sites.names(), *self._sites.expected}
            remedy = nearest(site, known, "Known sites")
        raise self._script.error(span, problem, remedy)

    def check(
        self,
        site: str,
        call: CallNode,
        *,
        source: Relation | None = None,
        sink: TaskSpec | None = None,
    ) -> None:
        """Have the site look at what `call` names, while nothing has changed yet. Options that are
        wrong are shown in the text; a file that is not there is no mistake in it."""
        try:
            self._sites.peer(site).call(
                "check",
                timeout_s=PREPARE_S,
                sources=[source.model_dump()] if source else [],
                tasks=[sink.model_dump()] if sink else [],
            )
        except ConfigError as error:
            span = _blamed(call, error.message)
            raise self._script.error(span, error.message, error.remedy) from error


def _blamed(call: CallNode, message: str) -> Span:
    """The option that `message` names, or else the call."""
    named = [one.span for one in call.options
             if f"'{one.name}'" in message or f" {one.name} = " in message]  # fmt: skip
    return named[0] if named else call.span
