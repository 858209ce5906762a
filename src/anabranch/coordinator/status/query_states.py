"""In which state each query and pocket is, as a person would say it, why it gets nowhere, and
when a run is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TypeGuard

from anabranch.coordinator.base.reports import AnySite, ProtectionReport, QueryState, SystemStatus
from anabranch.coordinator.status.description import primaries
from anabranch.errors import AnabranchError, ConfigError
from anabranch.link.reports import Delay, SourceReport, TaskReport
from anabranch.plan.catalog import AnyDef, ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.definitions import Definitions
from anabranch.plan.operators import Node
from anabranch.plan.tasks import sink_task

CATCHING_UP = "catching up"
"""It goes on, at first with what it had before a restart."""
WELL = ("running", "done", CATCHING_UP)


def goes_on(state: QueryState) -> bool:
    return state.state in WELL


def query_states(
    sites: Sequence[AnySite], known: Definitions, protection: Mapping[str, ProtectionReport]
) -> dict[str, QueryState]:
    """The state of each query or pocket that the user knows; workers count for the query that they
    are part of.
    """
    states = _States(sites, known, protection)
    return {
        one.name: states.of(one.name)
        for one in known.values()
        if isinstance(one, PocketDef) or is_asked_for(one)
    }


def is_asked_for(definition: AnyDef) -> TypeGuard[QueryDef | ApproximateDef]:
    """Whether it is a query that the user knows, not one of its workers."""
    return isinstance(definition, ApproximateDef) or (
        isinstance(definition, QueryDef) and not definition.part_of
    )


class _States:
    def __init__(
        self,
        sites: Sequence[AnySite],
        known: Definitions,
        protection: Mapping[str, ProtectionReport],
    ) -> None:
        self._known = known
        self._protection = protection
        self._sites = {one.site: one for one in sites}
        self._tasks = {task.name: task for task in primaries(sites)}
        self._standbys = [
            task for one in sites for task in one.tasks if task.role == "standby" and not task.error
        ]
        self._filled = {
            one.output: one.name for one in known.values() if isinstance(one, PocketDef)
        }
        self._sources = {one.stream: one for site in sites for one in site.sources}
        self._held = {name: one for site in sites for name, one in site.held.items()}
        self.of = cache(self._of)

    def _of(self, name: str) -> QueryState:
        definition = self._known[name]
        if isinstance(definition, ApproximateDef):
            return self._of_workers([worker.query for worker in definition.workers])
        assert isinstance(definition, QueryDef | PocketDef)
        task = self._tasks.get(name)
        if task is None:
            return self._without_task(name, definition.site)
        if task.state not in ("running", "done"):
            return _as_told(task)
        sink = (
            self._sink(definition) if isinstance(definition, QueryDef) and definition.sink else None
        )
        if sink and not goes_on(sink):
            return sink
        if task.state == "running" and (trouble := next(self._troubles(definition), None)):
            return trouble
        if task.state == "running" and (replayed := self._replayed(definition)):
            return QueryState(CATCHING_UP, replayed)
        return sink or QueryState(task.state)

    def _of_workers(self, workers: Sequence[str]) -> QueryState:
        """The state of all workers together; while one is replaced, the others' results go on."""
        states = {name: self.of(name) for name in workers if name in self._known}
        troubles = [(name, one) for name, one in states.items() if not goes_on(one)]
        if not troubles:
            done = bool(states) and all(one.state == "done" for one in states.values())
            return QueryState("done" if done else "running")
        name, worst = next((one for one in troubles if one[1].state == "failed"), troubles[0])
        same = len({one.state for one in states.values()}) == 1
        word = worst.state if same or worst.state == "failed" else "recovering"
        return QueryState(word, f"worker {name}: {worst.reason or worst.state}")

    def _without_task(self, name: str, site: str) -> QueryState:
        assignment = self._protection.get(name)
        if assignment and any(task.name == name for task in self._standbys):
            return QueryState("taking over", f"{assignment.standby} after {assignment.site}")
        home = assignment.site if assignment else site
        return self._away(home, name) or QueryState("waiting", _not_yet(site))

    def _sink(self, query: QueryDef) -> QueryState:
        site = query.sink_site or query.site
        task = self._tasks.get(sink_task(query.name))
        if task is not None and (away := task.away):
            return _held_up("sink away", "its sink", away)
        if task is not None and task.state != "waiting":
            return QueryState("failed" if task.error else task.state)
        if task is None and (held := self._held.get(sink_task(query.name))):
            return _held_up("sink away", "its sink", held)
        if task is None and self._state(site) in ("up", "stuck"):
            return QueryState("sink away", f"its sink: {_not_yet(site)}")
        how = self._state(site) if task is None else "putting it back"
        return QueryState(
            "sink away", f"its sink is at {site}, which is {how}; results wait for it"
        )

    def _troubles(self, definition: QueryDef | PocketDef) -> Iterator[QueryState]:
        """The obstacles that keep its inputs from coming: a query waits for all of them."""
        if isinstance(definition, QueryDef):
            for node in definition.nodes[:-1]:
                yield from self._trouble_in(node)
        for name in definition.reads:
            read = self._known.get(self._filled.get(name, name))
            if isinstance(read, QueryDef | PocketDef):
                state = self.of(read.name)
                if not goes_on(state) and state.state != "sink away":
                    verb = "has" if state.state == "no input" else "is"
                    yield QueryState("no input", f"{read.kind} {read.name} {verb} {state.state}")
            elif isinstance(read, StreamDef | TableDef):
                yield from self._trouble_of(read)

    def _trouble_in(self, part: Node) -> Iterator[QueryState]:
        """The trouble in a part of a query that was moved towards its sources."""
        task = self._tasks.get(part.name)
        state = _as_told(task) if task else self._without_task(part.name, part.site)
        if not goes_on(state):
            yield QueryState("no input", f"its part at {part.site}: {state.reason or state.state}")

    def _trouble_of(self, source: StreamDef | TableDef) -> Iterator[QueryState]:
        report = self._sources.get(source.name)
        if report is None:
            trouble = self._away(source.site, source.name)
            why = trouble.reason if trouble else _not_yet(source.site)
            yield QueryState("no input", f"{source.kind} {source.name}: {why}")
        elif report.error:
            named = f"{source.kind} {source.name}"
            why = report.error.message.removeprefix(f"{named}: ")
            yield QueryState("no input", f"{named} failed: {why}")
        elif report.problem:
            by = Delay(report.problem, passes=True, since_s=report.problem_s or 0.0)
            yield _held_up("no input", f"{source.kind} {source.name}", by)

    def _replayed(self, definition: QueryDef | PocketDef) -> str:
        """How far those of its streams are that are read again, if some are."""
        far = []
        for name in definition.reads:
            read = self._known.get(self._filled.get(name, name))
            if isinstance(read, QueryDef | PocketDef):
                state = self.of(read.name)
                far += [state.reason] if state.state == CATCHING_UP else []
            elif (report := self._sources.get(name)) and report.state == "running":
                done, whole = report.replayed, report.to_replay
                if done < whole:
                    line = f"stream {name}: {done:,} of {whole:,} recorded tuples are read again"
                    far.append(line)
        return "; ".join(dict.fromkeys(far))

    def _away(self, site: str, name: str) -> QueryState | None:
        """The state of something that its site does not run."""
        if held := self._held.get(name):
            return _held_up("waiting", "it", held)
        match self._state(site):
            case "up" | "stuck":  # by something else that it should run
                return None
            case "starting":
                return QueryState("starting", f"site {site} {self._sites[site].problem}")
            case _:
                return QueryState("lost", f"site {site} is away")

    def _state(self, site: str) -> str:
        report = self._sites.get(site)
        return report.state if report else "away"


def _held_up(state: str, what: str, by: Delay) -> QueryState:
    """The state of something that waits for an obstacle to pass, or else until a person does
    something about it.
    """
    reason = by.reason.rstrip(".")
    if not by.passes:
        return QueryState("stuck", f"{what} cannot go on: {reason}")
    return QueryState(state, f"{what} waits: {reason} (for {by.since_s:.0f} s so far)")


def _as_told(task: TaskReport) -> QueryState:
    """The state according to the site that has the task."""
    waits = task.state == "waiting"
    return QueryState(task.state, f"site {task.site} is putting it back" if waits else "")


def _not_yet(site: str) -> str:
    return f"site {site} is back and has not been given it again yet"


def failures(status: SystemStatus) -> list[AnabranchError]:
    """All failures, as they were raised. A standby that failed protects no more; its query goes
    on.
    """
    parts: list[SourceReport | TaskReport] = [*status.sources(), *primaries(status.sites)]
    return [part.error.error() for part in parts if part.error]


def lost_sites(status: SystemStatus) -> list[str]:
    return [site.problem for site in status.sites if site.state != "up"]


def idle(status: SystemStatus) -> bool:
    """Whether nothing is left to do. Raises ConfigError if there is nothing finite to wait for.
    While a site does not run all its own tasks, its remaining work is unknown.
    """
    if any(site.missing for site in status.sites):
        return False
    sources = {one.stream: one for one in status.sources()}
    finite = {name for name, source in sources.items() if source.finite}
    ending = [query for query in status.ends if sources_of(query, status.ends) <= finite]
    if not ending:
        raise ConfigError(
            "no query reads a source that ends, so the run would never be idle",
            remedy="Use --for 30s instead of --until-idle.",
        )
    awaited = frozenset[str]().union(*(sources_of(query, status.ends) for query in ending))
    if any(sources[name].state != "ended" for name in awaited):
        return False
    return all(one.state == "done" for one in primaries(status.sites) if one.query in ending)


def sources_of(name: str, ends: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The streams from outside that a query ends with."""
    if name not in ends:
        return frozenset({name})
    return frozenset[str]().union(*(sources_of(one, ends) for one in ends[name]))
