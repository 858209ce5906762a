"""The coordinator's service: one gate, the catalog behind it, sites around it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from anabranch.config.cluster import Cluster
from anabranch.coordinator.catalog import Catalog
from anabranch.coordinator.deploy import Deployment, undeploy
from anabranch.coordinator.scripts import Answer, ScriptCheck
from anabranch.coordinator.sites import Sites
from anabranch.errors import AnabranchError, SiteError
from anabranch.language.source import Script
from anabranch.link.gate import Credentials, Gate

HEARTBEATS_PER_REPORT = 2
"""Sites report to the coordinator every so many heartbeat intervals."""


class Coordinator:
    """Deploys and watches. It may die at any time: sites go on, and a new coordinator on the same
    state folder finds catalog and sites again, on the same port."""

    def __init__(self, state: Path, cluster: Cluster, credentials: Credentials) -> None:
        self.cluster = cluster
        self.credentials = credentials
        self._catalog = Catalog(state / "catalog.db")
        report_s = HEARTBEATS_PER_REPORT * cluster.heartbeat_interval_us / 1e6
        self.sites = Sites(self._catalog, credentials, report_s * cluster.missed_heartbeats)
        self._changing = threading.Lock()
        self.stop_asked = threading.Event()
        self._gate = Gate(self._listen(), credentials, self._actions())
        self._catalog.remember("address", self._gate.address)

    def _listen(self) -> str:
        """The same port as before a restart: the sites keep calling it."""
        before = self._catalog.setting("address")
        return before if before and self.cluster.listen.port == 0 else str(self.cluster.listen)

    @property
    def address(self) -> str:
        return self._gate.address

    def _actions(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "ping": lambda body: {"coordinator": True, "pid": os.getpid()},
            "join": self._join,
            "heartbeat": lambda body: self.sites.heartbeat(body["report"]),
            "execute": self._execute,
            "status": lambda body: self.status(),
            "stop": lambda body: self.stop_asked.set(),
        }

    def _join(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a site needs to know before it starts."""
        taken = self.sites.record(body["site"])
        if taken and taken.pid != body["pid"] and body["site"] in self.sites.alive():
            raise SiteError(
                f"site {body['site']} is up already, at {taken.address}",
                remedy="Stop that one first, or choose another name.",
            )
        return {"cluster": self.cluster.model_dump(mode="json")}

    def _execute(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        script = Script(body["text"], body["name"])
        return [answer.to_dict() for answer in self.execute(script, body["base"])]

    def execute(self, script: Script, base: str) -> list[Answer]:
        """Check the whole script, then change the system.

        Nothing has changed if the check raises; if a site refuses what it is asked to run, only
        what the script drops has gone.
        """
        with self._changing:
            before = self._catalog.definitions()
            changes = ScriptCheck(script, before, self.sites, base, self._site_rows).run()
            for name in changes.drop:
                undeploy(self.sites, before[name], before)
            kept = {name: one for name, one in before.items() if name not in changes.drop}
            known = kept | {one.name: one for one in changes.add}
            try:
                Deployment(self.sites, changes.add, known).run()
            except AnabranchError:
                self._catalog.change(add=(), drop=changes.drop)
                raise
            self._catalog.change(add=changes.add, drop=changes.drop)
            return changes.answers

    def redeploy_if_all_is_lost(self) -> bool:
        """After a restart: if no site runs anything of the catalog, deploy all of it anew."""
        with self._changing:
            known = self._catalog.definitions()
            reports = [record.report for name in self.sites.alive()
                       if (record := self.sites.record(name))]  # fmt: skip
            running = any(report.get("tasks") or report.get("sources") for report in reports)
            if not known or running:
                return False
            Deployment(self.sites, list(known.values()), known).run()
            return True

    def status(self) -> dict[str, Any]:
        """Every site with a fresh report, or why there is none."""
        names = self.sites.names()
        with ThreadPoolExecutor(max_workers=max(1, min(16, len(names)))) as pool:
            reports = list(pool.map(self._site_status, names))
        definitions = self._catalog.definitions()
        return {
            "address": self.address,
            "sites": reports,
            "streams": [one.name for one in definitions.values() if one.kind == "stream"],
            "reads": {one.name: one.input for one in definitions.values() if one.kind == "query"},
        }

    def _site_status(self, name: str) -> dict[str, Any]:
        try:
            report: dict[str, Any] = self.sites.peer(name).call("status", timeout_s=3.0)
        except SiteError as error:
            record = self.sites.record(name)
            address = record.address if record else ""
            missing = {"tasks": [], "sources": [], "state": "unreachable", "problem": error.line()}
            return {"site": name, "address": address} | missing
        return report | {"state": "up"}

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
        self._gate.shutdown()
        self.sites.close()
        self._catalog.close()
