"""The workers of approximate queries: who is dead, who takes a dead worker's keys, and who stands
by for workers that cannot be estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.control.control import Control
from anabranch.errors import Refused, SiteError
from anabranch.link.messages import Attach, Ping, Points, Status
from anabranch.plan.approximate import dealt_out, located, replaced, worker_query
from anabranch.plan.catalog import ApproximateDef, QueryDef
from anabranch.plan.definitions import Definitions, relation, tasks
from anabranch.plan.rules import rewritten
from anabranch.plan.service_levels import Standby
from anabranch.runtime.base import Runtime

PING_S = 1.0
STATUS_S = 10.0
MARGINS = (1, 8, 64, 512)
"""So many slides ahead keys are dealt out, one after the other, if queries did not begin in
time."""


class TooLate(SiteError):
    """The window that a change was to begin with has begun before the change was ready."""

    def __init__(self) -> None:
        super().__init__("the window has begun")


class Workers:
    """For a thread of its own. It makes its changes in turn with the `control`."""

    def __init__(
        self,
        sites: Sites,
        catalog: Catalog,
        runtime: Runtime,
        control: Control,
        say: Callable[[str], None],
    ) -> None:
        self._sites = sites
        self._catalog = catalog
        self._runtime = runtime
        self._control = control
        self._say = say

    def located(self, query: ApproximateDef) -> ApproximateDef:
        """The query with its workers' present sites: a standby may have taken over."""
        return located(query, self._catalog.definitions())

    def current(self, query: ApproximateDef) -> ApproximateDef:
        """The query as the catalog has it now, with the generations of its workers."""
        current = self._catalog.definitions().get(query.name)
        return self.located(current if isinstance(current, ApproximateDef) else query)

    def is_dead(self, query: ApproximateDef, number: int) -> bool:
        """Whether nobody listens at its site, the site has been silent for too long, or its process
        was found ended.
        """
        site = query.workers[number].site
        if site not in self._sites.alive():
            return True
        try:
            self._sites.peer(site).send(Ping(), PING_S)
        except Refused:
            return True
        except SiteError:
            return False  # it may be slow; heartbeats tell
        return False

    # -- standbys --------------------------------------------------------------------------------

    def has_standby(self, definition: ApproximateDef, number: int) -> bool:
        """Whether it should have a standby."""
        query = self._catalog.definitions().get(definition.workers[number].query)
        return isinstance(query, QueryDef) and query.standby is not None

    def standby(self, query: ApproximateDef, number: int) -> str | None:
        """The site that would take it over."""
        with self._runtime:
            return self._control.protector.stands_by(query.workers[number].query)

    def in_hand(self, query: ApproximateDef, number: int) -> bool:
        """Whether a live standby takes it over, or has done so."""
        with self._runtime:
            return self._control.protector.in_hand(query.workers[number].query)

    def protect(self, query: ApproximateDef, number: int, wanted: bool) -> None:
        """Gives a worker a standby, or takes it away."""
        name = query.workers[number].query
        self._runtime.run(self._control.protect(name, Standby() if wanted else None))
        why = "cannot be estimated: it gets a standby" if wanted else "can be estimated again"
        self._say(f"{name} {why}")

    # -- replacements ----------------------------------------------------------------------------

    def replace(self, definition: ApproximateDef, number: int) -> None:
        """Gives the keys of a dead worker to another site, from the next whole window on."""
        with self._control.turn({definition.name, definition.workers[number].query}):
            known = self._catalog.definitions()
            current = self._same(definition, known)
            if current.leaving:
                raise SiteError(f"keys of {definition.name} are being dealt out anew")
            definition = located(current, known)
            dead = definition.workers[number]
            site = self._site_for(definition, number)
            first = replaced(definition, number, site, since=1)
            statements, gone = self._control.statements, [known[dead.query]]
            intended, _ = statements.intend([self._query(first, number, known)], gone)
            try:
                start, since = self._begin(first, number, known)
            except BaseException:
                statements.give_up(intended)
                raise
            definition = replaced(definition, number, site, since)
            query = self._query(definition, number, known)
            _, change = statements.intend([query], gone, [definition], intended)
            self._runtime.run(statements.exchange(intended, change, begins={query.name: start}))
        self._say(f"{site} took over the keys of {dead.query} from {dead.site}")

    # -- keys dealt out anew ---------------------------------------------------------------------

    def deal(
        self,
        query: ApproximateDef,
        assignment: tuple[tuple[str, ...], ...],
        changed: Sequence[int],
        windows: int,
    ) -> None:
        """Starts a new query for each worker that gets other keys, beside its old one. From the
        first window on that all of the new ones have whole, they deliver it.
        """
        with self._control.turn({query.name, *(query.workers[n].query for n in changed)}):
            known = self._catalog.definitions()
            query = located(self._same(query, known), known)
            begun = (
                self._beside(dealt_out(query, assignment, changed, since, windows), changed, known)
                for since in self._instants(query, known)
            )
            then = next((one for one in begun if one is not None), None)
            if then is None:
                raise SiteError(
                    f"{query.name}: its stream is too fast for its keys to be dealt out"
                )
        for number in changed:
            if self.has_standby(query, number):
                self.protect(then, number, wanted=True)
        self._say(f"{query.name}: keys of {len(changed)} workers are being dealt out anew")

    def _instants(self, query: ApproximateDef, known: Definitions) -> Iterator[int]:
        """Ends of windows that should begin after the queries have begun."""
        for slides in MARGINS:
            first = self._runtime.run(self._first_whole(query, known))
            yield first + slides * query.slide_us

    def _beside(
        self, then: ApproximateDef, changed: Sequence[int], known: Definitions
    ) -> ApproximateDef | None:
        """Starts the queries beside the old ones. None if their first window had begun by the time
        they had their inputs: then they would not have it whole, and none of them begins.
        """

        async def in_time() -> None:
            if await self._first_whole(then, known) > then.workers[changed[0]].since:
                raise TooLate

        queries = [self._query(then, number, known) for number in changed]
        statements = self._control.statements
        intended, change = statements.intend(queries, replace=[then])
        try:
            self._runtime.run(statements.exchange(intended, change, attached=in_time))
        except TooLate:
            return None
        return then

    def let_go(self, definition: ApproximateDef) -> None:
        """Ends the queries that hand their keys over, once all their results are out."""
        with self._control.turn({definition.name, *definition.leaving}):
            known = self._catalog.definitions()
            current = known.get(definition.name)
            if not isinstance(current, ApproximateDef) or not current.leaving:
                return
            since = max(worker.since for worker in current.workers if worker.generations[-1].handed)
            leaving = [
                query_
                for name in current.leaving
                if isinstance(query_ := known.get(name), QueryDef)
            ]
            if not all(self._is_out(query, since) for query in leaving):
                return
            ended = current.model_copy(update={"leaving": ()})
            statements = self._control.statements
            intended, change = statements.intend([], leaving, [ended])
            self._runtime.run(statements.exchange(intended, change))
        self._say(f"{definition.name}: keys are dealt out anew")

    def _is_out(self, query: QueryDef, since: int) -> bool:
        """Whether all results with event times before `since` are in the table."""
        peer = self._sites.peer(query.site)
        tasks_there = peer.send(Status(), STATUS_S).tasks
        task = next((one for one in tasks_there if one.output == query.name), None)
        sink = next((one for one in tasks_there if one.query == query.name and one.sink), None)
        if task is None or sink is None or (task.watermark or 0) < since:
            return False
        written = peer.send(Points(), STATUS_S).get(sink.name)
        return written is not None and written.inputs[0] >= task.position

    def _site_for(self, query: ApproximateDef, number: int) -> str:
        """A site that is alive and has the fewest workers of this query."""
        alive = set(self._sites.alive())
        load = [worker.site for worker in query.workers]
        sites = [site for site in query.asked.sites if site in alive]
        if not sites:
            raise SiteError(f"no site is left for {query.workers[number].query}")
        return min(sites, key=lambda site: (load.count(site), query.asked.sites.index(site)))

    def _begin(
        self, definition: ApproximateDef, number: int, known: Definitions
    ) -> tuple[int, int]:
        """The position after which the replacement reads, and the end of its first whole window: no
        tuple up to that position was newer than the newest one at that moment.
        """
        query = self._query(definition, number, known)
        every = tasks([query], {**known, query.name: query})
        node = next(task for task in every if task.output == query.name)
        keys = node.inputs[0]
        start = self._sites.peer(keys.site).send(Attach(keys.stream, node.consumer(0)))
        return start, self._runtime.run(self._first_whole(definition, known))

    async def _first_whole(self, query: ApproximateDef, known: Definitions) -> int:
        """The end of the first window that begins after all that its stream has brought."""
        source = relation(known, query.reads[0])
        report = await self._sites.call(source.site, Status(), STATUS_S)
        newest = next(one.newest for one in report.sources if one.stream == source.name) or 0
        slide = query.slide_us
        return -(-(int(newest) + 1) // slide) * slide + query.width_us

    def _same(self, query: ApproximateDef, known: Definitions) -> ApproximateDef:
        """The query as the catalog has it now. Raises SiteError if it was dropped."""
        current = known.get(query.name)
        if not isinstance(current, ApproximateDef) or current.template.run != query.template.run:
            raise SiteError(f"{query.name} was dropped")
        return current

    def _query(self, definition: ApproximateDef, number: int, known: Definitions) -> QueryDef:
        queries = [one for one in known.values() if isinstance(one, QueryDef)]
        running = {node.name: node.site for query in queries for node in query.nodes}
        return rewritten(worker_query(definition, number), partial(relation, known), running)
