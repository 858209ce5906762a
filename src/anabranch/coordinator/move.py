"""Moving a query to another site while it runs: a standby is posted there and told to take over.

It is the take-over after a failure, only that nothing has failed: whoever reads the query is sent
what it lacks, and nothing twice. Only the query's own node moves; what was pushed down to its
sources stays with them, and its sink stays where it writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anabranch.coordinator.catalog import Catalog
from anabranch.coordinator.protect import Protector
from anabranch.coordinator.protected import spec_of
from anabranch.coordinator.rulers import Ruler
from anabranch.coordinator.sites import Sites, nearest, unknown_site
from anabranch.errors import AnabranchError, ConfigError, SiteError, TaskError
from anabranch.plan.catalog import QueryDef
from anabranch.plan.protection import Standby

CATCH_UP_S = 60.0
"""How long the standby may take until it could take over."""
TAKE_OVER_S = 30.0
LEAVE_S = 10.0
"""The old primary finds out by itself; for so long we wait for it."""
LOOK_S = 0.05
AT_ONCE = 1
"""The standby's batch: it is there only to catch up, so it gets each tuple as it comes."""


class Move:
    """Takes the coordinator's lock for each step, and never while it waits: the watcher, who notes
    the take-over, needs it too."""

    def __init__(
        self, sites: Sites, catalog: Catalog, protector: Protector, changing: threading.Lock
    ) -> None:
        self._sites = sites
        self._catalog = catalog
        self._protector = protector
        self._changing = changing

    def run(self, name: str, site: str) -> str:
        """The site that the query was at; raises if it is there still."""
        with self._changing:
            query = self._query(name)
            self._check(query, site)
            before = query.site
            claim = self._post(query, site)
        try:
            self._wait(query.name, site, CATCH_UP_S, lambda: self._ready(query.name, site, claim))
            self._sites.peer(site).call("take_over", task=query.name)
            self._wait(query.name, site, TAKE_OVER_S, lambda: self._rules(query.name, site, claim))
        except AnabranchError:
            with self._changing:
                self._call_off(query.name, claim)
            raise
        with suppress(TaskError):
            self._wait(query.name, site, LEAVE_S, lambda: self._has_left(query.name, before))
        return before

    # -- before ----------------------------------------------------------------------------------

    def _query(self, name: str) -> QueryDef:
        known = self._catalog.definitions()
        found = next((one for key, one in known.items() if key.lower() == name.lower()), None)
        queries = [one.name for one in known.values() if isinstance(one, QueryDef)]
        if found is None:
            raise ConfigError(f"unknown query '{name}'", remedy=nearest(name, queries, "Queries"))
        if not isinstance(found, QueryDef):
            raise ConfigError(f"{found.name} is a {found.kind}", remedy="Only queries move.")
        return found

    def _check(self, query: QueryDef, site: str) -> None:
        if site not in self._sites.names():
            raise unknown_site(site, self._sites.names())
        if site == query.site:
            raise ConfigError(f"query {query.name} is at {site} already")
        if site not in self._sites.alive():
            raise SiteError(
                f"site {site} is not reachable", remedy="Start it, or choose another one."
            )
        for task in self._reported(query.site, query.name):
            if task["error"]:
                raise TaskError(
                    f"query {query.name} has failed", remedy="Drop it and create it again."
                )

    def _post(self, query: QueryDef, site: str) -> int:
        """The epoch in which the standby at `site` will rule. One that is there already does."""
        known, rulers = self._catalog.definitions(), self._protector.rulers
        ruler = rulers.get(query.name)
        if ruler is None:
            ruler = Ruler(spec_of(query.name, known).site, 0, stream=query.name)
            rulers.set(query.name, ruler)
            self._protector.want(known)
        if ruler.standby != site or not self._protector.in_hand(query.name):
            self._protector.post(query.name, site, Standby(batch=AT_ONCE), known)
        return rulers[query.name].claim

    # -- waiting ---------------------------------------------------------------------------------

    def _wait(self, name: str, site: str, seconds: float, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise TaskError(
                    f"query {name} could not be moved to {site} within {seconds:g} s",
                    remedy="It goes on where it was; `anabranch status` shows what is amiss.",
                )
            time.sleep(LOOK_S)

    def _ready(self, name: str, site: str, claim: int) -> bool:
        ruler = self._protector.rulers.get(name)
        if ruler is None or claim not in (ruler.claim, ruler.epoch):
            raise TaskError(f"query {name} was dropped or protected anew while it moved")
        tasks = [task for task in self._reported(site, name) if task["epoch"] == claim]
        for error in (task["error"] for task in tasks if task["error"]):
            raise TaskError(f"query {name} fails at {site}: {error['message']}")
        return any(task.get("protects") or task["role"] == "primary" for task in tasks)

    def _rules(self, name: str, site: str, claim: int) -> bool:
        """It says so itself, and the catalog too."""
        with self._changing:
            query = self._catalog.definitions().get(name)
        noted = isinstance(query, QueryDef) and query.site == site
        return noted and any(
            task["epoch"] >= claim and task.get("guard") == "primary"
            for task in self._reported(site, name)
        )

    def _has_left(self, name: str, site: str) -> bool:
        return all(task["role"] != "primary" for task in self._reported(site, name))

    def _reported(self, site: str, name: str) -> Iterator[dict[str, Any]]:
        """The tasks of this name at a site, if it answers."""
        with suppress(SiteError):
            report = self._sites.peer(site).call("status", timeout_s=3.0)
            yield from (task for task in report["tasks"] if task["name"] == name)

    def _call_off(self, name: str, claim: int) -> None:
        """Nobody stands by any more, unless it has taken over: a route without it says so."""
        rulers = self._protector.rulers
        ruler = rulers.get(name)
        if ruler and ruler.claim == claim > ruler.epoch:
            rulers.set(name, replace(ruler, standby=None, claim=rulers.next_epoch()))
            self._protector.broadcast()
