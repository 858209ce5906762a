"""Who protects what: gives every protected task a standby, and finds out who rules after a failure.

Standbys take over by themselves. The coordinator only chooses them, hands out epochs, of which no
two standbys ever get the same, and replaces those that died or have become primaries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from anabranch.coordinator.catalog import Catalog
from anabranch.coordinator.deploy import PREPARE_S, Definitions
from anabranch.coordinator.protected import placed, protected, sink_along, spec_of
from anabranch.coordinator.rulers import Ruler, Rulers
from anabranch.coordinator.sites import Sites
from anabranch.coordinator.standings import Standings
from anabranch.errors import AnabranchError, SiteError
from anabranch.plan.catalog import AnyDef, PocketDef, StreamDef
from anabranch.plan.protection import Standby
from anabranch.plan.tasks import TaskSpec

GRACE_S = 5.0
"""How long a new standby may take to appear in its site's reports."""
RECOVERY_S = 3.0
"""How long one that has taken over is left alone at most, until it has caught up."""
FIRST_BATCH = 100
"""Until the tuner knows better."""


class Protector:
    """Every call is made by one thread at a time: the coordinator's lock is held."""

    def __init__(self, sites: Sites, catalog: Catalog) -> None:
        self._sites = sites
        self._catalog = catalog
        self.rulers = Rulers(catalog)
        self.standings = Standings(sites, self.rulers)
        self.problems: dict[str, str] = {}
        """Task → why it has no standby."""
        self._posted: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._succeeded: dict[str, float] = {}
        self.wanted = False
        self.want(catalog.definitions())

    def want(self, known: Definitions) -> None:
        """Look whether there is anything to protect."""
        self.wanted = bool(protected(known)) or bool(self.rulers.items())

    def look(self, known: Definitions) -> None:
        """Replace the standbys that are gone. What only has been moved gets one when it is gone
        itself, at its own site, to come back by it."""
        wanted = protected(known)
        for name, ruler in self.rulers.items():
            lost = not self._runs(name, ruler) and ruler.site in self._sites.alive()
            asked = wanted.get(name) or (Standby(batch=1) if lost else None)
            if asked and not (self._standby_is_well(name, ruler) or self._recovers(name, ruler)):
                with suppress(AnabranchError):
                    self._post(name, asked, known)

    def learn(self, known: Definitions) -> list[AnyDef]:
        """What has moved, as it is now: a standby has taken over."""
        moved: dict[str, AnyDef] = {}
        for name, ruler in self.rulers.items():
            newest, epoch = self._newest(name, ruler)
            if epoch <= ruler.epoch:
                continue
            self.rulers.set(name, ruler.succeeded(newest, epoch))
            self._succeeded[name] = self._begun[name] = time.monotonic()
            for one in known.values():
                there = placed(moved.get(one.name, one), name, newest)
                if isinstance(one, StreamDef) and one.name == ruler.stream:
                    there = one.model_copy(update={"site": newest})
                if there != one:
                    moved[one.name] = there
        return list(moved.values())

    def _newest(self, name: str, ruler: Ruler) -> tuple[str, int]:
        """Who rules in the latest epoch, and in which: as those say who do, or those who were told.
        One that died as soon as it had told them is still followed, so it has to be replaced."""
        found = list(self._reported(name, "primary").items())
        for site in self._sites.alive():
            record = self._sites.record(site)
            told = record.report.get("rulers", {}).get(ruler.stream) if record else None
            found += [(told[0], told[1])] if told else []
        return max(found, key=lambda one: one[1], default=(ruler.site, ruler.epoch))

    def routes(self) -> dict[str, list[Any]]:
        """For the sites: stream → (site, epoch, standby, its claim)."""
        return {r.stream: [r.site, r.epoch, r.standby, r.claim] for _, r in self.rulers.items()}

    def standby_of(self, stream: str) -> str | None:
        return next((r.standby for _, r in self.rulers.items() if r.stream == stream), None)

    def forget(self, names: Iterable[str]) -> None:
        """These tasks are dropped: at every site, whoever stands by or has just taken over."""
        gone = [name for name in names if self.rulers.get(name)]
        if gone:
            self._sites.ask(self._sites.alive(), "drop", tasks=gone)
        for name in gone:
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

    def filled(self, known: Definitions) -> set[str]:
        """Streams of pockets that may have moved: they are where the pocket is."""
        return {one.output for one in known.values() if isinstance(one, PocketDef)
                and self.keeps(one.name)}  # fmt: skip

    def in_hand(self, name: str) -> bool:
        """A live standby of the task is about to rule, or does already."""
        ruler = self.rulers.get(name)
        return ruler is not None and self._standby_is_well(name, ruler)

    def crown(self, specs: Sequence[TaskSpec], known: Definitions) -> dict[str, dict[str, int]]:
        """The birth of tasks that are created, and for those that may ever be taken over the epoch
        in which they begin. All sites have heard of it before a task runs: who follows it must not
        look for it where it once was."""
        self.rulers.bear(spec.name for spec in specs)
        wanted = protected(known)
        epochs = {}
        for spec in specs:
            known_ruler = self.rulers.get(spec.name) or self.rulers.ruled(spec.name)
            if spec.output and (spec.name in wanted or known_ruler):
                epoch = epochs[spec.name] = self.rulers.next_epoch()
                self.rulers.set(spec.name, Ruler(spec.site, epoch, None, epoch, spec.output))
                self._begun[spec.name] = time.monotonic()
        if epochs:
            self.broadcast()
        return {spec.name: {"birth": self.rulers.birth(spec.name),
                            "epoch": epochs.get(spec.name, 0)} for spec in specs}  # fmt: skip

    def keeps(self, name: str) -> bool:
        """A task that is put back by a standby at its site, if at all; also the sink that goes with
        it."""
        return self.rulers.get(name) is not None

    # -- choosing --------------------------------------------------------------------------------

    def _reported(self, name: str, role: str) -> dict[str, int]:
        """Sites that say they run the task in this role → its epoch there."""
        found = {}
        for site in self._sites.alive():
            record = self._sites.record(site)
            for task in record.report.get("tasks", ()) if record else ():
                failed = task["role"] == "standby" and task["state"] == "failed"
                if task["name"] == name and task["role"] == role and not failed:
                    found[site] = task["epoch"]
        return found

    def _standby_is_well(self, name: str, ruler: Ruler) -> bool:
        """It stands by, or has taken over and we are about to learn it."""
        if ruler.standby is None:
            return False
        if any(self._reported(name, role).get(ruler.standby) == ruler.claim
               for role in ("standby", "primary")):  # fmt: skip
            return True
        posted = self._posted.get(name, 0.0)
        return ruler.standby in self._sites.alive() and time.monotonic() - posted < GRACE_S

    def _runs(self, name: str, ruler: Ruler) -> bool:
        """As far as we know: what was begun a moment ago has not been reported yet."""
        begun = self._begun.get(name, 0.0)
        return ruler.site in self._reported(name, "primary") or time.monotonic() - begun < GRACE_S

    def _protects(self, name: str, ruler: Ruler) -> bool:
        return bool(self._report(name, ruler.standby).get("protects"))

    def _recovers(self, name: str, ruler: Ruler) -> bool:
        """It has just taken over: what it catches up with comes before its own standby."""
        if time.monotonic() - self._succeeded.get(name, -RECOVERY_S) > RECOVERY_S:
            return False
        return "recovered" not in self._report(name, ruler.site).get("timeline", {})

    def _report(self, name: str, site: str | None) -> Mapping[str, Any]:
        """What a site says of a task; empty if nothing."""
        record = self._sites.record(site) if site else None
        found = record.report.get("tasks", ()) if record else ()
        return next((task for task in found if task["name"] == name), {})

    def _choose(self, spec: TaskSpec, ruler: Ruler, wanted: str | None) -> str | None:
        """A site for the standby: the one asked for if it is up, or another, that does not die with
        the primary, rather not with those it reads either, and has little to do. If the primary is
        dead, whoever is posted takes over: then best where it was."""
        alive = self._sites.alive()
        if ruler.site in alive and not self._runs(spec.name, ruler):
            return ruler.site
        others = [site for site in alive if site != ruler.site]
        if wanted in others:
            return wanted
        feeding = {source.site for source in spec.inputs}
        apart = [site for site in others if not self._sites.together(site, ruler.site)]
        return min(apart, key=lambda site: (site in feeding, self._burden(site)), default=None)

    def _burden(self, site: str) -> tuple[int, str]:
        record = self._sites.record(site)
        return len(record.report.get("tasks", ())) if record else 0, site

    # -- posting ---------------------------------------------------------------------------------

    def _post(self, name: str, standby: Standby, known: Definitions) -> None:
        ruler = self.rulers[name]
        site = self._choose(spec_of(name, known), ruler, standby.on)
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
                self._sites.peer(ruler.standby).call("drop", timeout_s=10.0, standbys=[name])
        spec = spec_of(name, known)
        points = self.standings.points()
        point = self.standings.start(spec, points)
        consumers = self.standings.consumers(spec, known, points)
        if any(one["after"] < point["output"] for one in consumers.values()):
            raise SiteError(f"a reader of {name} needs more than is known of it")
        claim = self.rulers.next_epoch()
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
            consumers=consumers,
            sink=sink_along(spec, site, known),
        )
        self._posted[name] = time.monotonic()
        self.rulers.set(name, replace(ruler, standby=site, claim=claim))
        self.broadcast()

    def broadcast(self) -> None:
        """Tell all sites; those that miss it hear it with their next heartbeat."""
        self._sites.ask(self._sites.alive(), "routes", routes=self.routes())
