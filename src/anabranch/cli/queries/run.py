"""`anabranch run` and `anabranch explain`: a script on sites of its own, from start to end or
only as it would run, and what becomes of sites that are lost meanwhile.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from rich.live import Live
from rich.markup import escape

from anabranch.cli.queries.check import check_early
from anabranch.cli.queries.scripts import cluster_for, read_script
from anabranch.cli.show.tables import (
    err,
    out,
    queries_table,
    show_answer,
    stdout_to_stderr,
    working,
)
from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.scripts.analysis import asked, explained
from anabranch.coordinator.service.temporary import TemporarySystem
from anabranch.coordinator.status.query_states import failures, idle
from anabranch.errors import ConfigError, SiteError
from anabranch.language.grammar.parser import parse
from anabranch.language.source import Script
from anabranch.link.message import plain
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.plan.definitions import relation
from anabranch.plan.picture import picture
from anabranch.plan.tasks import tasks_of
from anabranch.plan.tree import Branch, Lookup, explain, tree

PATIENCE_S = 1.0
"""A site that does not answer may be slow; and who takes over has to say so first."""


class Losses:
    """Looks at each status of a run in turn; `say` is called once a lost site has been replaced."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._since: dict[str, float] = {}
        self._primaries: dict[str, str] = {}
        self._taken: defaultdict[str, list[str]] = defaultdict(list)
        """Lost site → the queries that others have taken over from it, and who has."""

    def look(self, status: SystemStatus) -> None:
        """Raises SiteError if a lost site ran something that no other site has."""
        down = {one.site: one for one in status.sites if one.state != "up"}
        self._follow(status, down)
        for site, report in down.items():
            lost_for = self._clock() - self._since.setdefault(site, self._clock())
            if report.state == "stuck" or (report.lost and lost_for >= PATIENCE_S):
                died = report.state == "starting"  # again, by us: what it had is lost
                raise SiteError(f"a site is lost: {f'{site} died' if died else report.problem}")
            if not report.missing:
                self._tell(site)
        for site in [one for one in self._since if one not in down]:
            del self._since[site]
            self._tell(site)

    def _follow(self, status: SystemStatus, down: Iterable[str]) -> None:
        for name, primary in status.protection.items():
            before = self._primaries.get(name, primary.site)
            self._primaries[name] = primary.site
            if before != primary.site and before in {*down, *self._since}:
                self._taken[before].append(f"{primary.site} took over {name}")

    def _tell(self, site: str) -> None:
        if taken := self._taken.pop(site, None):
            self._say(f"site {site} is lost; {', '.join(taken)}")


POLL_S = 0.1


class Run(TemporarySystem):
    """A system that a command starts: a site that dies is started again."""

    def __init__(
        self,
        cluster: ClusterConfig,
        progress: Callable[[str], None],
        say: Callable[[str], None] = lambda line: err.print(escape(line)),
    ) -> None:
        """`say` is called with a line about each site that is lost without harm."""
        self._say = say
        super().__init__(cluster, progress, revive=True)

    def watch(
        self, seconds: float | None, until_idle: bool, look: Callable[[SystemStatus], None]
    ) -> SystemStatus:
        """Waits until the time is over, all is idle or something failed; returns the last status.

        Raises the failure, or SiteError if a lost site ran something that no standby has.
        """
        end = time.monotonic() + seconds if seconds is not None else None
        losses = Losses(self._say)
        while True:
            status = self.coordinator.status()
            look(status)
            for error in failures(status):
                raise error
            losses.look(status)
            if until_idle and idle(status):
                return status
            if end is not None and time.monotonic() >= end:
                return status
            time.sleep(POLL_S)


def run_script(
    path: Path, cluster: Path | None, seconds: float | None, until_idle: bool, as_json: bool
) -> None:
    script = read_script(path)
    if as_json:
        with stdout_to_stderr():  # what console sinks print is no JSON
            status = _run(script, path, cluster, seconds, until_idle, quiet=True)
        print(json.dumps(plain(status), indent=2))
        return
    status = _run(script, path, cluster, seconds, until_idle, quiet=False)
    if not out.is_terminal:
        out.print(queries_table(status))


def _run(
    script: Script,
    path: Path,
    cluster: Path | None,
    seconds: float | None,
    until_idle: bool,
    *,
    quiet: bool,
) -> SystemStatus:
    if not parse(script):  # before Spark, which takes its time
        raise ConfigError("there is no statement in this script", place=str(path))
    on = cluster_for(script, cluster)
    check_early(script, on, str(path.resolve().parent))
    with working("Starting …") as say:
        run = Run(on, say)
    with run:
        for answer in run.coordinator.execute(script, str(path.resolve().parent)):
            if not quiet:
                show_answer(answer)
        return _watch(run, seconds, until_idle, live=not quiet and out.is_terminal)


def _watch(run: Run, seconds: float | None, until_idle: bool, *, live: bool) -> SystemStatus:
    if not live:
        return run.watch(seconds, until_idle, lambda status: None)
    with Live(console=out, auto_refresh=False) as table:
        return run.watch(
            seconds, until_idle, lambda status: table.update(queries_table(status), refresh=True)
        )


def explain_script(path: Path, name: str | None, svg: Path | None, cluster: Path | None) -> None:
    """Explains the queries. The sites are started, because only Spark knows the types, but nothing
    is deployed on them.
    """
    script = read_script(path)
    with working("Starting …") as say:
        run = Run(cluster_for(script, cluster), say)

    with run:
        known = {one.name: one for one in run.coordinator.plan(script, str(path.resolve().parent))}
        lookup = partial(relation, known)
        notes = run.coordinator.placement_notes(known)
        queries = choose(known, name, str(path))
        sites = run.coordinator.sites
        plans = [explained(asked(sites), tasks_of(query, lookup)) for query in queries]
    for index, query in enumerate(queries):
        title = f"query {query.name}"
        text = "\n\n".join(filter(None, [explain(query, lookup, notes), plans[index]]))
        out.print(f"{title}\n{'─' * len(title)}\n{text}", markup=False)
        if index < len(queries) - 1:
            out.print()
    if svg:
        trees = [one for query in queries for one in titled(query, lookup)]
        try:
            svg.write_text(picture(trees), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write it: {error.strerror}", place=str(svg)) from None
        err.print(f"wrote {svg}", markup=False)


def titled(query: QueryDef, lookup: Lookup) -> list[tuple[str, Branch]]:
    """The trees of a picture: as written, and as run where that differs."""
    run = tree(query, query.nodes, lookup)
    if query.nodes == (query.written,):
        return [(f"query {query.name}", run)]
    written = tree(query, (query.written,), lookup)
    return [(f"query {query.name}, as written", written), (f"query {query.name}, as run", run)]


def choose(known: dict[str, AnyDef], name: str | None, place: str) -> list[QueryDef]:
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    if not queries:
        raise ConfigError("this script creates no query", place=place)
    if name is None:
        return queries
    chosen = [one for one in queries if one.name.lower() == name.lower()]
    if not chosen:
        names = ", ".join(one.name for one in queries)
        raise ConfigError(f"it creates no query {name}", place=place, remedy=f"It has {names}.")
    return chosen
