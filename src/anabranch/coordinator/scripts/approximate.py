"""Binds and explains the approximate queries of a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.coordinator.base.reports import ApproximationReport, WorkerReport
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.scripts.references import Outside
from anabranch.language.binding.approximate import bind_approximate
from anabranch.language.grammar.statements import CreateQuery
from anabranch.language.source import Script
from anabranch.plan.catalog import AnyDef, Approximate, ApproximateDef, QueryDef, StreamDef, Worker
from anabranch.plan.service_levels import percentage

Reported = Callable[[str], ApproximationReport | None]
"""Query → what is known about its estimates."""
Assignment = Callable[[str, Approximate], tuple[tuple[str, ...], ...]]
"""Query, what it asks for → the keys of each worker, if something has been learnt."""


class ApproximateScripts:
    def __init__(
        self,
        script: Script,
        outside: Outside,
        sites: Sites,
        reported: Reported,
        assignment: Assignment,
    ) -> None:
        self._script = script
        self._outside = outside
        self._sites = sites
        self._reported = reported
        self._assignment = assignment

    def bind(
        self, statement: CreateQuery, query: QueryDef, known: Mapping[str, AnyDef]
    ) -> ApproximateDef:
        """The definition of an approximate query, from the bound `query`; its workers are at the
        sites it names, or else at all but its stream's.
        """
        clause = statement.approximate
        assert clause is not None
        for name in clause.sites:
            self._outside.check_site(name.text, name.span)
        source = known[query.reads[0]]
        if not isinstance(source, StreamDef) or source.source is None:
            raise self._script.error(
                clause.span,
                f"{source.name} does not say how far it is",
                "Read a stream that has a source.",
            )
        others = [site for site in sorted(self._sites.alive()) if site != source.site]
        sites = [name.text for name in clause.sites] or others
        definition = bind_approximate(self._script, statement, query, sites)
        keys = self._assignment(definition.name, definition.asked)
        return definition.model_copy(update={"assignment": keys})

    def explain(self, query: ApproximateDef) -> str:
        """Which worker has which keys, and why, as far as something has been learnt about it."""
        promise, known = query.asked, self._reported(query.name)
        lines = [
            f"approximate {query.value} by {', '.join(query.keys)} within {promise.epsilon:g}"
            f" with confidence {percentage(promise.confidence)}, {len(query.workers)} workers"
            + (f" of which {promise.failures} may be lost at once" if promise.failures > 1 else "")
        ]
        if known is None:
            lines += [
                f"├─ {worker.query}  @ {worker.site}: restart point (nothing learnt yet)"
                for worker in query.workers
            ]
        else:
            lines += [
                _worker_line(*pair) for pair in zip(query.workers, known.workers, strict=True)
            ]
        lines[-1] = "└" + lines[-1][1:]
        if known:
            lines.append(
                f"model {known.model}, learnt from {known.learnt_from} windows;"
                f" {known.estimated} values estimated so far"
            )
        return "\n".join(lines)


def _worker_line(worker: Worker, report: WorkerReport) -> str:
    keys = f", {report.keys} keys" if report.keys else ""
    return f"├─ {worker.query}  @ {worker.site}{keys}: {report.protection} ({report.why})"
