"""The coordinator's placement: of new queries, and of what runs when the network has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from anabranch.config.cluster import Cluster
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.placement.deadlines import Deadlines
from anabranch.coordinator.placement.monitor import Monitor, sample_of
from anabranch.coordinator.placement.moves import PlacementReport, Replan
from anabranch.coordinator.placement.replan import Replanner
from anabranch.coordinator.placement.timely import with_deadlines
from anabranch.coordinator.placement.together import placed_together
from anabranch.placement.methods import placer
from anabranch.plan.catalog import AnyDef, QueryDef, Relation
from anabranch.plan.definitions import relation
from anabranch.plan.placed import Surroundings, placed, placed_with_pocket


class Placing:
    def __init__(self, sites: Sites, catalog: Catalog, cluster: Cluster) -> None:
        self._sites = sites
        self._catalog = catalog
        self._placer = placer(cluster.placement.method)
        self.monitor = Monitor(catalog, cluster.placement.sample_us / 1e6)
        self.deadlines = Deadlines(sites, catalog, cluster, self.monitor.latency)
        self._replanner = Replanner(
            sites,
            self.monitor,
            self._placer,
            lambda site: cluster.sites[site].slots if site in cluster.sites else 1,
        )

    def place(
        self, query: QueryDef, lookup: Callable[[str], Relation], running: Mapping[str, str]
    ) -> QueryDef:
        """With a site for each node. Of sites that are as good, the first stream's is taken. Raises
        PlacementError."""
        return placed(query, lookup, self._around(query, running), self._placer)

    def together(
        self, new: Sequence[AnyDef], known: Mapping[str, AnyDef], running: Mapping[str, str]
    ) -> dict[str, QueryDef]:
        """Those among the `new` queries that deadlines wait for, where these hold."""
        alive = sorted(self._sites.alive())
        return placed_together(new, known, running, self.deadlines, alive)

    def _around(self, query: QueryDef, running: Mapping[str, str]) -> Surroundings:
        alive = sorted(self._sites.alive(), key=lambda site: (site != query.site, site))
        return Surroundings(self.monitor.network(alive), self.monitor.rates(), running)

    def place_with_pocket(
        self, query: QueryDef, pocket: str, known: Mapping[str, AnyDef]
    ) -> tuple[QueryDef, str]:
        """The input query of a pocket that is to be anywhere, and the pocket's site. Raises
        PlacementError."""
        queries = [one for one in known.values() if isinstance(one, QueryDef)]
        running = {
            node.name: node.site for one in queries if one.name != query.name for node in one.nodes
        }
        around = self._around(query, running)
        look = partial(relation, known)
        return placed_with_pocket(query, pocket, look, around, self._placer)

    def look(self, now: float) -> None:
        """Take a sample if one is due."""
        if self.monitor.due(now):
            records = filter(None, map(self._sites.record, self._sites.alive()))
            self.monitor.add(
                now, sample_of(time.time(), [one.report for one in records if one.report])
            )

    def again(self) -> Replan:
        """What would move now. Raises PlacementError."""
        known = self._catalog.definitions()
        found = self._replanner.look(known)
        return with_deadlines(found, known, self.deadlines, sorted(self._sites.alive()))

    def moved(self) -> None:
        """What `again` said has been done."""
        self.deadlines.renew()

    def cost(self) -> float:
        return self._replanner.cost(self._catalog.definitions())

    def report(self) -> dict[str, PlacementReport]:
        """For status: why everything is where it is."""
        return self._replanner.placement(self._catalog.definitions())

    def picture(self) -> str:
        return self._replanner.picture(self._catalog.definitions())

    def standby_costs(self, task: str, known: Mapping[str, AnyDef]) -> dict[str, float]:
        """What a task would cost at sites where it is not."""
        return self._replanner.standby_costs(known, task)

    def notes(self, known: dict[str, AnyDef]) -> dict[str, str]:
        """For EXPLAIN: of each operator that the system places, why it is where it is."""
        found = self._replanner.placement(known) if len(self._sites.alive()) > 1 else {}
        return {name: f"placed: {one.text}" for name, one in found.items()}
