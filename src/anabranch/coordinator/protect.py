"""Who protects what: gives every protected task a standby, and finds out who rules after a failure.

Standbys take over by themselves. The coordinator only chooses them, hands out epochs, of which no
two standbys ever get the same, and replaces those that died or have become primaries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from anabranch.coordinator.catalog import Catalog
from anabranch.coordinator.deploy import PREPARE_S, Definitions, tasks
from anabranch.coordinator.rulers import Ruler, Rulers
from anabranch.coordinator.sites import Sites
from anabranch.errors import AnabranchError, SiteError
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.protection import SHARED_SINKS, Standby
from anabranch.plan.tasks import TaskSpec, sink_task

GRACE_S = 5.0
"""How long a new standby may take to appear in its site's reports."""
FIRST_BATCH = 100
"""Until the tuner knows better."""


class Protector:
    """Every call is made by one thread at a time: the coordinator's lock is held."""

    def __init__(self, sites: Sites, catalog: Catalog) -> None:
        self._sites = sites
        self._catalog = catalog
        self.rulers = Rulers(catalog)
        self.problems: dict[str, str] = {}
        """Task → why it has no standby."""
        self._posted: dict[str, float] = {}
        self.wanted = False
        self.want(catalog.definitions())

    def want(self, known: Definitions) -> None:
        """Look whether there is anything to protect."""
        self.wanted = bool(protected(known)) or bool(self.rulers.items())

    def look(self, known: Definitions) -> None:
        """Replace the standbys that are gone."""
        for name, standby in protected(known).items():
            ruler = self.rulers.get(name)
            if ruler and not self._standby_is_well(name, ruler):
                with suppress(AnabranchError):
                    self._post(name, standby, known)

    def learn(self, known: Definitions) -> list[AnyDef]:
        """What has moved, as it is now: a standby has taken over."""
        moved: dict[str, AnyDef] = {}
        for name, ruler in self.rulers.items():
            found = self._reported(name, "primary")
            newest = max(found, key=lambda one: found[one], default=None)
            if newest is None or found[newest] <= ruler.epoch:
                continue
            self.rulers.set(name, ruler.succeeded(newest, found[newest]))
            for one in known.values():
                there = placed(moved.get(one.name, one), name, newest)
                if isinstance(one, StreamDef) and one.name == ruler.stream:
                    there = one.model_copy(update={"site": newest})
                if there != one:
                    moved[one.name] = there
        return list(moved.values())

    def routes(self) -> dict[str, list[Any]]:
        """For the sites: stream → (site, epoch, standby, its claim)."""
        return {r.stream: [r.site, r.epoch, r.standby, r.claim] for _, r in self.rulers.items()}

    def standby_of(self, stream: str) -> str | None:
        return next((r.standby for _, r in self.rulers.items() if r.stream == stream), None)

    def forget(self, names: Iterable[str]) -> None:
        """These tasks are dropped."""
        for name in names:
            ruler = self.rulers.get(name)
            if ruler and ruler.standby:
                with suppress(AnabranchError):
                    self._sites.peer(ruler.standby).call("drop", timeout_s=30.0, tasks=[name])
            self.rulers.forget(name)
            self.problems.pop(name, None)

    def report(self) -> dict[str, dict[str, Any]]:
        """Task → who runs it, who stands by, and what is amiss."""
        return {
            name: asdict(ruler) | {
                "problem": self.problems.get(name, ""),
                "protected": self._protects(name, ruler),
            }
            for name, ruler in self.rulers.items()
        }  # fmt: skip

    def in_hand(self, name: str) -> bool:
        """A live standby of the task is about to rule, or does already."""
        ruler = self.rulers.get(name)
        return ruler is not None and self._standby_is_well(name, ruler)

    def crown(self, specs: Iterable[TaskSpec], known: Definitions) -> dict[str, int]:
        """The epochs in which tasks begin, for those that may ever be taken over. All sites have
        heard of them before a task runs: who follows it must not look for it where it once was."""
        wanted = protected(known)
        epochs = {}
        for spec in specs:
            known_ruler = self.rulers.get(spec.name) or self.rulers.ruled(spec.name)
            if spec.output and (spec.name in wanted or known_ruler):
                epoch = epochs[spec.name] = self.rulers.next_epoch()
                self.rulers.set(spec.name, Ruler(spec.site, epoch, None, epoch, spec.output))
        if epochs:
            self.broadcast()
        return epochs

    # -- choosing --------------------------------------------------------------------------------

    def _reported(self, name: str, role: str) -> dict[str, int]:
        """Sites that say they run the task in this role → its epoch there."""
        found = {}
        for site in self._sites.alive():
            record = self._sites.record(site)
            for task in record.report.get("tasks", ()) if record else ():
                if task["name"] == name and task["role"] == role:
                    found[site] = task["epoch"]
        return found

    def _standby_is_well(self, name: str, ruler: Ruler) -> bool:
        if ruler.standby is None:
            return False
        if self._reported(name, "standby").get(ruler.standby) == ruler.claim:
            return True
        posted = self._posted.get(name, 0.0)
        return ruler.standby in self._sites.alive() and time.monotonic() - posted < GRACE_S

    def _protects(self, name: str, ruler: Ruler) -> bool:
        record = self._sites.record(ruler.standby) if ruler.standby else None
        found = record.report.get("tasks", ()) if record else ()
        return any(task["name"] == name and task.get("protects") for task in found)

    def choose(self, ruler: Ruler, wanted: str | None) -> str | None:
        """A site for the standby: the one asked for if it is up, or another, that does not die with
        the primary."""
        alive = [site for site in self._sites.alive() if site != ruler.site]
        if wanted in alive:
            return wanted
        apart = [site for site in alive if not self._sites.together(site, ruler.site)]
        return min(apart, key=self._burden, default=None)

    def _burden(self, site: str) -> tuple[int, str]:
        record = self._sites.record(site)
        return len(record.report.get("tasks", ())) if record else 0, site

    # -- posting ---------------------------------------------------------------------------------

    def _post(self, name: str, standby: Standby, known: Definitions) -> None:
        ruler = self.rulers[name]
        site = self.choose(ruler, standby.on)
        if site is None:
            self.problems[name] = f"no site but {ruler.site} is up that could stand by"
            return
        try:
            self.post(name, site, standby, known)
            self.problems.pop(name, None)
        except AnabranchError as error:
            self.problems[name] = error.line()
            raise

    def post(self, name: str, site: str, standby: Standby, known: Definitions) -> None:
        """Have `site` stand by for a task, instead of who did so before."""
        ruler = self.rulers[name]
        if ruler.standby and ruler.standby != site:
            with suppress(AnabranchError):
                self._sites.peer(ruler.standby).call("drop", timeout_s=10.0, tasks=[name])
        spec = spec_of(name, known)
        claim = self.rulers.next_epoch()
        point = self._point(spec, ruler)
        peer = self._sites.peer(site)
        peer.call("peers", peers=self._sites.addresses())
        peer.call("routes", routes=self.routes())
        peer.call(
            "stand_by",
            timeout_s=PREPARE_S,
            task=spec.model_copy(update={"site": site}).model_dump(),
            point=point,
            primary=ruler.site,
            epoch=claim,
            batch=standby.batch or FIRST_BATCH,
            codec=standby.compress,
            wishes={
                "batch": standby.batch,
                "recovery_s": standby.recovery_us / 1e6 if standby.recovery_us else None,
                "overhead": standby.overhead,
            },
            consumers=self._consumers(spec, known),
            sink=_sink_along(spec, site, known),
        )
        self._posted[name] = time.monotonic()
        self.rulers.set(name, replace(ruler, standby=site, claim=claim))
        self.broadcast()

    def broadcast(self) -> None:
        """Tell all sites at once; those that miss it hear it with their next heartbeat."""
        routes = self.routes()
        for site in self._sites.alive():
            with suppress(AnabranchError):
                self._sites.peer(site).call("routes", timeout_s=2.0, routes=routes)

    def _point(self, spec: TaskSpec, ruler: Ruler) -> dict[str, Any]:
        """Where the task would restart: as its primary says, or if that is dead, those it reads."""
        with suppress(SiteError):
            points = self._sites.peer(ruler.site).call("points", timeout_s=2.0)
            if spec.name in points:
                found: dict[str, Any] = points[spec.name]
                return found
        return self.remembered(spec)

    def remembered(self, spec: TaskSpec) -> dict[str, Any]:
        """The newest restart point that a task told those it reads."""
        stands = [
            self._sites.peer(source.site).call(
                "standing", stream=source.stream, consumer=spec.consumer(index)
            )
            for index, source in enumerate(spec.inputs)
        ]
        points = [one["restart"] for one in stands if one["restart"]]
        if points:
            return dict(max(points, key=lambda p: (p["output"], p["instant"], p["inputs"])))
        return {"inputs": [one["released"] for one in stands], "output": 0}

    def _consumers(self, spec: TaskSpec, known: Definitions) -> dict[str, int]:
        """Who reads the task's output, and what each still needs."""
        needed: dict[str, int] = {}
        for task in tasks(known.values(), known):
            for index, source in enumerate(task.inputs):
                if source.stream == spec.output:
                    points = self._sites.peer(task.site).call("points")
                    point = points.get(task.name)
                    needed[task.consumer(index)] = point["inputs"][index] if point else 0
        return needed


def protected(known: Definitions) -> dict[str, Standby]:
    """The tasks that queries ask a standby for. What reads a source where that is dies with it,
    and comes back with it; only the query itself is protected even there."""
    found: dict[str, Standby] = {}
    for query in known.values():
        if isinstance(query, PocketDef) and query.standby:
            found[query.name] = query.standby
        if not isinstance(query, QueryDef) or query.standby is None:
            continue
        for node in query.nodes:
            sources = [known.get(port.stream) for port in node.inputs]
            pinned = any(isinstance(one, StreamDef | TableDef) for one in sources)
            if node.name == query.name or not pinned:
                found[node.name] = query.standby
    return found


def _sink_along(spec: TaskSpec, site: str, known: Definitions) -> dict[str, Any] | None:
    """The task of the sink that goes where its query goes, as it would be at `site`."""
    query = known.get(spec.name)
    if not isinstance(query, QueryDef) or not query.sink or settled_sink(query):
        return None
    sink = spec_of(sink_task(query.name), known)
    there = tuple(source.model_copy(update={"site": site}) for source in sink.inputs)
    return sink.model_copy(update={"site": site, "inputs": there}).model_dump()


def spec_of(name: str, known: Definitions) -> TaskSpec:
    return next(task for task in tasks(known.values(), known) if task.name == name)


def settled_sink(query: QueryDef) -> str | None:
    """The site that a query's sink stays at though the query moves; None if it moves along."""
    if query.sink_site or not query.sink or query.sink.name in SHARED_SINKS:
        return query.sink_site
    return query.site


def placed(one: AnyDef, task: str, site: str) -> AnyDef:
    """A definition once `task` runs at another site: of a query or pocket that it belongs to, or of
    the stream that the pocket fills."""
    if isinstance(one, PocketDef) and one.name == task:
        return one.model_copy(update={"site": site})
    if not isinstance(one, QueryDef) or all(node.name != task for node in one.nodes):
        return one
    nodes = tuple(n.model_copy(update={"site": site}) if n.name == task else n for n in one.nodes)
    update: dict[str, Any] = {"nodes": nodes}
    if task == one.name:
        update["site"] = site
        update["sink_site"] = settled_sink(one)
    return one.model_copy(update=update)
