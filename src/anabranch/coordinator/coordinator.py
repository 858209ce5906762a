"""The coordinator's service: one gate, the catalog behind it, sites around it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from anabranch.config.cluster import Cluster
from anabranch.coordinator.catalog import Catalog
from anabranch.coordinator.deploy import Deployment, tasks, undeploy
from anabranch.coordinator.move import Move
from anabranch.coordinator.pockets import Submission, changes_for
from anabranch.coordinator.protect import Protector
from anabranch.coordinator.protected import settled_sink
from anabranch.coordinator.restore import Restoration, lost_sites
from anabranch.coordinator.scripts import Answer, Changes, ScriptCheck
from anabranch.coordinator.sites import Sites
from anabranch.coordinator.status import system_status
from anabranch.errors import AnabranchError, SiteError
from anabranch.language.source import Script
from anabranch.link.gate import Credentials, Gate
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef, TableDef

RESTORE_S = 5.0
"""Between two looks whether something that should run does not."""
HEARTBEATS_PER_REPORT = 2
"""Sites report to the coordinator every so many heartbeat intervals."""


class Coordinator:
    """Deploys and watches. It may die at any time: sites go on, and a new coordinator on the same
    state folder finds catalog and sites again, on the same port."""

    def __init__(self, state: Path, cluster: Cluster, credentials: Credentials) -> None:
        self.cluster = cluster
        self.credentials = credentials
        self._state = state
        self._catalog = Catalog(state / "catalog.db")
        report_s = HEARTBEATS_PER_REPORT * cluster.heartbeat_interval_us / 1e6
        gone_after_s = report_s * cluster.missed_heartbeats
        self.sites = Sites(self._catalog, credentials, gone_after_s, cluster.sites)
        self._protector = Protector(self.sites, self._catalog)
        self._changing = threading.Lock()
        self._moving = threading.Lock()
        self._news = threading.Event()
        self._settled = False
        """All that was there before a restart of ours has been looked after."""
        self._problems: dict[str, str] = {}
        self.stop_asked = threading.Event()
        self._gate = Gate(self._listen(), credentials, self._actions())
        self._catalog.remember("address", self._gate.address)
        self._closed = threading.Event()
        self._watch_s = cluster.heartbeat_interval_us / 1e6
        self._watcher = threading.Thread(target=self._watch, name="protection", daemon=True)
        self._watcher.start()

    def _listen(self) -> str:
        """The same port as before a restart: the sites keep calling it."""
        before = self._catalog.setting("address")
        return before if before and self.cluster.listen.port == 0 else str(self.cluster.listen)

    def site_state(self, name: str) -> Path:
        """Where a site of this machine keeps what it needs to go on after it was killed."""
        return self._state / "sites" / quote(name, safe="")

    @property
    def address(self) -> str:
        return self._gate.address

    def _actions(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "ping": lambda body: {"coordinator": True, "pid": os.getpid()},
            "join": self._join,
            "heartbeat": self._heartbeat,
            "execute": self._execute,
            "submit": self._submit,
            "move": lambda body: {"was_at": self.move(body["query"], body["site"])},
            "status": lambda body: self.status(),
            "stop": lambda body: self.stop_asked.set(),
        }

    def _join(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a site needs to know before it starts."""
        taken = self.sites.record(body["site"])
        if taken and taken.pid != body["pid"] and self._answers(body["site"]):
            raise SiteError(
                f"site {body['site']} is up already, at {taken.address}",
                remedy="Stop that one first, or choose another name.",
            )
        return {"cluster": self.cluster.model_dump(mode="json")}

    def _answers(self, site: str) -> bool:
        """Heard of lately and still there: one that was killed a moment ago may come back."""
        if site not in self.sites.alive():
            return False
        try:
            self.sites.peer(site).call("ping", timeout_s=1.0)
        except SiteError:
            return False
        return True

    def _heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        report = body["report"]
        before = self.sites.record(report["site"])
        addresses = self.sites.heartbeat(report)
        self._news.set()
        if before and before.pid != report["pid"]:  # it was killed and has come back empty
            threading.Thread(target=self.restore, name="restore", daemon=True).start()
        return {"addresses": addresses, "routes": self._protector.routes()}

    def _watch(self) -> None:
        """See that what asks for protection has it, and that what should run runs."""
        look_again = 0.0
        while not self._closed.is_set():
            self._news.wait(self._watch_s)
            self._news.clear()
            with self._changing:
                if not self._closed.is_set():
                    self._protect()
            if self._settled and time.monotonic() > look_again and not self._closed.is_set():
                look_again = time.monotonic() + RESTORE_S
                if self._something_is_missing():
                    self.restore()

    def _something_is_missing(self) -> bool:
        """By the reports that sites sent: cheap, and perhaps not quite up to date."""
        running: set[str] = set()
        alive = self.sites.alive()
        for record in filter(None, map(self.sites.record, alive)):
            running |= {one["stream"] for one in record.report.get("sources", ())}
            running |= {one["name"] for one in record.report.get("tasks", ())}
        known = self._catalog.definitions()
        filled = self._protector.filled(known)
        wanted = [(one.name, one.site) for one in known.values()
                  if isinstance(one, StreamDef | TableDef) and one.name not in filled]  # fmt: skip
        wanted += [(task.name, task.site) for task in tasks(known.values(), known)]
        return any(name not in running and site in alive for name, site in wanted)

    def _protect(self) -> None:
        if not self._protector.wanted:
            return
        moved = self._protector.learn(self._catalog.definitions())
        if moved:
            self._catalog.replace(moved)
            self._protector.broadcast()
        self._protector.look(self._catalog.definitions())

    def restore(self) -> list[str]:
        """Put back what sites ran before they were killed; the names of those that were."""
        with self._changing:
            if self._closed.is_set():
                return []
            known = self._catalog.definitions()
            lost = lost_sites(self.sites, known, self._protector)
            self._problems = {}
            try:
                if lost:
                    Restoration(self.sites, lost, known, self._protector).run()
            except AnabranchError as error:
                self._problems = dict.fromkeys(lost, f"cannot go on: {error.line()}")
            return list(lost)

    def _submit(self, body: dict[str, Any]) -> dict[str, Any]:
        submitted = Submission.read(body["pocket"])
        pocket = self.submit(submitted, body["base"], body.get("reader", ""))
        return pocket.model_dump(exclude={"program"})

    def _execute(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        script = Script(body["text"], body["name"])
        readers = body.get("readers", {})
        return [answer.to_dict() for answer in self.execute(script, body["base"], readers)]

    def execute(
        self, script: Script, base: str, readers: Mapping[str, str] | None = None
    ) -> list[Answer]:
        """Check the whole script, then change the system.

        Nothing has changed if the check raises; if a site refuses what it is asked to run, only
        what the script drops has gone. `readers`: new query → the name under which someone is
        going to follow its output, from its first tuple on.
        """
        with self._changing:
            changes = self._check(script, base, self._catalog.definitions())
            self._apply(changes, readers or {})
            return changes.answers

    def plan(self, script: Script, base: str) -> list[AnyDef]:
        """What there would be after `script`, without changing anything."""
        with self._changing:
            known = self._catalog.definitions()
            changes = self._check(script, base, known)
            kept = [one for name, one in known.items() if name not in changes.drop]
            return [*kept, *changes.add]

    def submit(self, submitted: Submission, base: str, reader: str = "") -> PocketDef:
        """Start a pocket, with the query and the stream that it brings along. `reader` is going to
        follow its output from the first tuple on."""
        with self._changing:

            def check(script: Script, known: dict[str, AnyDef]) -> Changes:
                return self._check(script, base, known)

            known = self._catalog.definitions()
            changes, pocket = changes_for(submitted, known, self.sites.names(), check)
            self._apply(changes, {pocket.output: reader} if reader else {})
            return pocket

    def _check(self, script: Script, base: str, known: dict[str, AnyDef]) -> Changes:
        return ScriptCheck(script, known, self.sites, base, self._site_rows).run()

    def _apply(self, changes: Changes, readers: Mapping[str, str]) -> None:
        kept = dict(self._catalog.definitions())
        for name in changes.drop:
            gone = undeploy(self.sites, kept[name], kept)
            self._protector.forget(gone)
            del kept[name]
        add = [_marked(one) for one in changes.add]
        known = kept | {one.name: one for one in add}
        try:
            Deployment(self.sites, add, known, readers, self._protector).run()
        except AnabranchError:
            self._protector.forget(task.name for task in tasks(add, known))
            self._catalog.change(add=(), drop=changes.drop)
            raise
        self._catalog.change(add=add, drop=changes.drop)
        self._settled = True
        self._protector.want(self._catalog.definitions())
        self._news.set()

    def move(self, query: str, site: str) -> str:
        """Have another site run a query, without loss or repetition; the site it was at."""
        with self._moving:
            return Move(self.sites, self._catalog, self._protector, self._changing).run(query, site)

    def redeploy_if_all_is_lost(self) -> str:
        """After a restart: if no site runs anything of the catalog, have them go on where they
        were, or deploy all of it anew if that cannot be. Says which; nothing if they run."""
        with self._changing:
            self._settled = True
            known = self._catalog.definitions()
            reports = [record.report for name in self.sites.alive()
                       if (record := self.sites.record(name))]  # fmt: skip
            running = any(report.get("tasks") or report.get("sources") for report in reports)
            if not known or running:
                return ""
            try:
                lost = lost_sites(self.sites, known, self._protector)
                Restoration(self.sites, lost, known, self._protector).run()
            except AnabranchError:  # a source that cannot be read again: then from now on
                for definition in reversed(known.values()):
                    undeploy(self.sites, definition, known)
                Deployment(self.sites, list(known.values()), known, {}, self._protector).run()
                return "deployed the catalog anew: a source cannot be read again from where it was"
            return "everything goes on where it was"

    def status(self) -> dict[str, Any]:
        """Every site with a fresh report, or why there is none."""
        known = self._catalog.definitions()
        status = system_status(self.sites, known, self._protector, self._problems)
        return {"address": self.address, **status}

    def _site_rows(self) -> list[tuple[str, ...]]:
        alive = self.sites.alive()
        return [
            (name, address, "up" if name in alive else "unreachable")
            for name, address in sorted(self.sites.addresses().items())
        ]

    def forget_sites(self) -> None:
        """They have been stopped with us: a later coordinator need not look for them."""
        self._catalog.forget_sites()

    def close(self) -> None:
        self._closed.set()
        self._news.set()
        self._watcher.join(timeout=10)
        self._gate.shutdown()
        self.sites.close()
        self._catalog.close()


def _marked(definition: AnyDef) -> AnyDef:
    """Each creation of a query bears a mark of its own. What a protected one writes stays where it
    is written, though the query may move."""
    if isinstance(definition, QueryDef):
        update: dict[str, Any] = {"run": uuid4().hex}
        if definition.standby:
            update["sink_site"] = settled_sink(definition)
        return definition.model_copy(update=update)
    return definition
