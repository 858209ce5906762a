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

    def located(self, made: ApproximateDef) -> ApproximateDef:
        """The query with its workers' present sites: a standby may have taken over."""
        return located(made, self._catalog.definitions())

    def current(self, made: ApproximateDef) -> ApproximateDef:
        """The query as the catalog has it now, with the generations of its workers."""
        found = self._catalog.definitions().get(made.name)
        return self.located(found if isinstance(found, ApproximateDef) else made)

    def is_dead(self, made: ApproximateDef, number: int) -> bool:
        """Whether nobody listens at its site, the site has been silent for too long, or its process
        was found ended.
        """
        site = made.workers[number].site
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

    def has_standby(self, made: ApproximateDef, number: int) -> bool:
        """Whether it should have a standby."""
        query = self._catalog.definitions().get(made.workers[number].query)
        return isinstance(query, QueryDef) and query.standby is not None

    def standby(self, made: ApproximateDef, number: int) -> str | None:
        """The site that would take it over."""
        with self._runtime:
            return self._control.protector.stands_by(made.workers[number].query)

    def in_hand(self, made: ApproximateDef, number: int) -> bool:
        """Whether a live standby takes it over, or has done so."""
        with self._runtime:
            return self._control.protector.in_hand(made.workers[number].query)

    def protect(self, made: ApproximateDef, number: int, wanted: bool) -> None:
        """Gives a worker a standby, or takes it away."""
        name = made.workers[number].query
        self._runtime.run(self._control.protect(name, Standby() if wanted else None))
        why = "cannot be estimated: it gets a standby" if wanted else "can be estimated again"
        self._say(f"{name} {why}")

    # -- replacements ----------------------------------------------------------------------------

    def replace(self, made: ApproximateDef, number: int) -> None:
        """Gives the keys of a dead worker to another site, from the next whole window on."""
        with self._control.turn({made.name, made.workers[number].query}):
            known = self._catalog.definitions()
            current = self._same(made, known)
            if current.leaving:
                raise SiteError(f"keys of {made.name} are being dealt out anew")
            made = located(current, known)
            dead = made.workers[number]
            site = self._site_for(made, number)
            first = replaced(made, number, site, since=1)
            statements, gone = self._control.statements, [known[dead.query]]
            intended, _ = statements.intend([self._query(first, number, known)], gone)
            try:
                start, since = self._begin(first, number, known)
            except BaseException:
                statements.give_up(intended)
                raise
            made = replaced(made, number, site, since)
            query = self._query(made, number, known)
            _, change = statements.intend([query], gone, [made], intended)
            self._runtime.run(statements.exchange(intended, change, begins={query.name: start}))
        self._say(f"{site} took over the keys of {dead.query} from {dead.site}")

    # -- keys dealt out anew ---------------------------------------------------------------------

    def deal(
        self,
        made: ApproximateDef,
        assignment: tuple[tuple[str, ...], ...],
        changed: Sequence[int],
        windows: int,
    ) -> None:
        """Starts a new query for each worker that gets other keys, beside its old one. From the
        first window on that all of the new ones have whole, they deliver it.
        """
        with self._control.turn({made.name, *(made.workers[n].query for n in changed)}):
            known = self._catalog.definitions()
            made = located(self._same(made, known), known)
            begun = (
                self._beside(dealt_out(made, assignment, changed, since, windows), changed, known)
                for since in self._instants(made, known)
            )
            then = next((one for one in begun if one is not None), None)
            if then is None:
                raise SiteError(f"{made.name}: its stream is too fast for its keys to be dealt out")
        for number in changed:
            if self.has_standby(made, number):
                self.protect(then, number, wanted=True)
        self._say(f"{made.name}: keys of {len(changed)} workers are being dealt out anew")

    def _instants(self, made: ApproximateDef, known: Definitions) -> Iterator[int]:
        """Ends of windows that should begin after the queries have begun."""
        for slides in MARGINS:
            first = self._runtime.run(self._first_whole(made, known))
            yield first + slides * made.slide_us

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

    def let_go(self, made: ApproximateDef) -> None:
        """Ends the queries that hand their keys over, once all their results are out."""
        with self._control.turn({made.name, *made.leaving}):
            known = self._catalog.definitions()
            current = known.get(made.name)
            if not isinstance(current, ApproximateDef) or not current.leaving:
                return
            since = max(worker.since for worker in current.workers if worker.generations[-1].handed)
            leaving = [
                one for name in current.leaving if isinstance(one := known.get(name), QueryDef)
            ]
            if not all(self._is_out(query, since) for query in leaving):
                return
            ended = current.model_copy(update={"leaving": ()})
            statements = self._control.statements
            intended, change = statements.intend([], leaving, [ended])
            self._runtime.run(statements.exchange(intended, change))
        self._say(f"{made.name}: keys are dealt out anew")

    def _is_out(self, query: QueryDef, since: int) -> bool:
        """Whether all results with event times before `since` are in the table."""
        peer = self._sites.peer(query.site)
        tasks_there = peer.send(Status(), STATUS_S).tasks
        made = next((one for one in tasks_there if one.output == query.name), None)
        sink = next((one for one in tasks_there if one.query == query.name and one.sink), None)
        if made is None or sink is None or (made.watermark or 0) < since:
            return False
        written = peer.send(Points(), STATUS_S).get(sink.name)
        return written is not None and written.inputs[0] >= made.position

    def _site_for(self, made: ApproximateDef, number: int) -> str:
        """A site that is alive and has the fewest workers of this query."""
        alive = set(self._sites.alive())
        load = [worker.site for worker in made.workers]
        there = [site for site in made.asked.sites if site in alive]
        if not there:
            raise SiteError(f"no site is left for {made.workers[number].query}")
        return min(there, key=lambda site: (load.count(site), made.asked.sites.index(site)))

    def _begin(self, made: ApproximateDef, number: int, known: Definitions) -> tuple[int, int]:
        """The position after which the replacement reads, and the end of its first whole window: no
        tuple up to that position was newer than the newest one at that moment.
        """
        query = self._query(made, number, known)
        every = tasks([query], {**known, query.name: query})
        node = next(task for task in every if task.output == query.name)
        keys = node.inputs[0]
        start = self._sites.peer(keys.site).send(Attach(keys.stream, node.consumer(0)))
        return start, self._runtime.run(self._first_whole(made, known))

    async def _first_whole(self, made: ApproximateDef, known: Definitions) -> int:
        """The end of the first window that begins after all that its stream has brought."""
        source = relation(known, made.reads[0])
        report = await self._sites.call(source.site, Status(), STATUS_S)
        newest = next(one.newest for one in report.sources if one.stream == source.name) or 0
        slide = made.slide_us
        return -(-(int(newest) + 1) // slide) * slide + made.width_us

    def _same(self, made: ApproximateDef, known: Definitions) -> ApproximateDef:
        """The query as the catalog has it now. Raises SiteError if it was dropped."""
        current = known.get(made.name)
        if not isinstance(current, ApproximateDef) or current.template.run != made.template.run:
            raise SiteError(f"{made.name} was dropped")
        return current

    def _query(self, made: ApproximateDef, number: int, known: Definitions) -> QueryDef:
        queries = [one for one in known.values() if isinstance(one, QueryDef)]
        running = {node.name: node.site for query in queries for node in query.nodes}
        return rewritten(worker_query(made, number), partial(relation, known), running)
