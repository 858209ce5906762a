"""The coordinator's service: one gate, the catalog, and the sites around it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from anabranch.config.cluster import ClusterConfig
from anabranch.connectors.operator import let_use
from anabranch.coordinator.approximate.learning import Learning, by_spark
from anabranch.coordinator.approximate.models import FileStore, Models, PostgresStore
from anabranch.coordinator.approximate.results import ApproximateResults
from anabranch.coordinator.approximate.watch import Approximations
from anabranch.coordinator.approximate.workers import Workers
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import Moved, Replan, Sample, SystemStatus
from anabranch.coordinator.base.secrets import Secrets
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.control.control import Control
from anabranch.coordinator.control.members import Membership
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.placement.replacement import Replacement
from anabranch.coordinator.requests import (
    AskStatus,
    Execute,
    MakeBackup,
    MoveQuery,
    Picture,
    ReplanAll,
    Samples,
    Stop,
    Submit,
    Submitted,
)
from anabranch.coordinator.scripts.references import asks_types, sites_needed
from anabranch.coordinator.scripts.scripts import Answer, ScriptChanges, ScriptCheck
from anabranch.coordinator.scripts.stages import forget_database, with_database
from anabranch.coordinator.service.backup import SystemBackup
from anabranch.coordinator.service.state import claim
from anabranch.coordinator.status.news import QueryNews, Say, SiteNews
from anabranch.coordinator.status.status import Seen, look, system_status, tables_in
from anabranch.disk.real import RealFolder
from anabranch.errors import SetupError, SiteError
from anabranch.language.source import Script
from anabranch.link.gate import Credentials, Gate, Handler, check_address
from anabranch.link.message import Message
from anabranch.link.messages import JoinCluster, Joined, News, Ping, Pong, SendReport
from anabranch.link.network import FlightNetwork
from anabranch.link.peer import Peers
from anabranch.plan.catalog import AnyDef, ApproximateDef, PocketDef, QueryDef
from anabranch.plan.definitions import settled_sink
from anabranch.plan.spec import Submission, run_name, secrets_in
from anabranch.runtime.log import note
from anabranch.runtime.loop import process_loop

START_S = 120.0
"""How long statements wait for sites that are being started."""
OLD_PORT_S = 5.0
"""How long a port that is in use is waited for after a restart: a connection may just have it."""
NEWS_S = 1.0
"""Between two looks at the states of queries."""


class Coordinator:
    """Deploys and watches. It may die at any time: sites go on, and a new coordinator on the same
    state folder finds catalog and sites again, on the same port."""

    def __init__(
        self,
        state: Path,
        cluster: ClusterConfig,
        credentials: Credentials,
        say: Say = lambda line: None,
    ) -> None:
        """`say` is called with a line when sites go and come, and after a take-over."""
        let_use(cluster.security)
        self.cluster = cluster
        self.credentials = credentials
        self._state = state
        self._claim = claim(state)
        self._catalog = Catalog(state / "catalog.db")
        self._secrets = Secrets(RealFolder(state))
        self._runtime = process_loop()
        self._peers = Peers(credentials)
        network = FlightNetwork(self._runtime, "the coordinator", self._peers)
        heartbeat_s = cluster.heartbeat_interval_us / 1e6
        gone_after_s = cluster.report_interval_s * cluster.missed_heartbeats
        self.sites = Sites(
            self._catalog,
            self._runtime,
            network,
            self._peers,
            gone_after_s,
            cluster.sites,
            self._secrets,
        )
        self._query_news = QueryNews(say)
        say = _logged(say)
        self._say = say
        self._site_news = SiteNews(say)
        self._news_due = 0.0
        self._placing = Placing(self.sites, self._catalog, cluster)
        with self._runtime:  # nobody looks before both are there
            self._control = Control(
                self._runtime,
                self.sites,
                self._catalog,
                heartbeat_s,
                say,
                self._look,
                self._placing.standby_costs,
            )
            self._replacement = Replacement(
                self._runtime,
                self._control,
                self._placing,
                cluster.placement.replan_us / 1e6,
                say,
            )
        self.stop_asked = threading.Event()
        self._approximations = Approximations(
            self._catalog,
            Workers(self.sites, self._catalog, self._runtime, self._control, say),
            Learning(partial(by_spark, self.sites)),
            Models(
                PostgresStore(cluster.models)
                if cluster.models
                else FileStore(state / "models.duckdb")
            ),
            say,
            heartbeat_s,
            self._secrets,
        )
        self._gate = Gate(self._listen(), credentials, self._actions(), runtime=self._runtime)
        self._catalog.remember("address", self._gate.address)

    def _listen(self) -> str:
        """Listens at the same port as before a restart, because the sites keep calling it. If the
        configuration allows any port, and another program has that one by now, it takes another.
        """
        wanted, before = str(self.cluster.listen), self._catalog.setting("address")
        if not before or self.cluster.listen.port != 0:
            return wanted
        try:
            check_address(before, OLD_PORT_S)
        except SetupError as error:
            self._say(f"{error.message}. Sites that still run call there: start them again")
            return wanted
        return before

    def site_state(self, name: str) -> Path:
        """The folder where a site of this machine keeps what it needs to go on after it was
        killed.
        """
        return self._state / "sites" / quote(name, safe="")

    @property
    def address(self) -> str:
        return self._gate.address

    def _actions(self) -> dict[type[Message[Any]], Handler]:
        return {
            Ping: lambda asked: Pong(os.getpid()),
            JoinCluster: self._join,
            SendReport: self._heartbeat,
            Execute: self._execute,
            Submit: self._submit,
            MoveQuery: lambda asked: self.move(asked.query, asked.site),
            ReplanAll: lambda asked: self.replan(dry_run=asked.dry_run),
            Samples: lambda asked: self.network_samples(),
            Picture: lambda asked: self._placing.picture(),
            AskStatus: lambda asked: self.status(),
            MakeBackup: self._back_up,
            Stop: lambda asked: self.stop_asked.set(),
        }

    async def _back_up(self, request: MakeBackup) -> dict[str, int]:
        """Makes a backup in the turn of everything: nobody changes definitions meanwhile."""
        backup = SystemBackup(self._runtime, self.sites, self._catalog, self._state)
        async with self._control.everybodys_turn(self._catalog.definitions()):
            return (await backup.run(Path(request.folder))).sites

    def _join(self, request: JoinCluster) -> Joined:
        """The facts that a site needs before it starts."""
        life = self.members.join(request)
        taken = self.sites.record(request.site)
        if taken and taken.pid != request.pid and self._answers(request.site):
            raise SiteError(
                f"site {request.site} is up already, at {taken.address}",
                remedy="Stop that one first, or choose another name.",
            )
        return Joined(self.cluster, life)

    @property
    def members(self) -> Membership:
        return self._control.members

    def _answers(self, site: str) -> bool:
        """Whether it was heard of lately and is still there; a site that was killed a moment ago
        may come back.
        """
        if site not in self.sites.alive():
            return False
        try:
            self.sites.peer(site).send(Ping(), 1.0)
        except SiteError:
            return False
        return True

    async def _heartbeat(self, request: SendReport) -> News:
        return self._control.heard(request.report)

    def restore(self) -> list[str]:
        """Puts back what sites ran before they were killed; returns the names of those sites."""
        return self._runtime.run(self._control.restore())

    def site_died(self, name: str, code: int) -> None:
        """Takes note that a site's process has ended."""
        self.sites.died(name)
        self._site_news.died(name, code)
        self._approximations.wake()

    def _submit(self, request: Submit) -> Submitted:
        if request.wait:
            self.sites.wait_for_starting(self.sites.starting(), START_S)
        pocket = self.submit(request.pocket, request.base, request.reader)
        return Submitted(pocket.name, pocket.site, pocket.input, pocket.output, pocket.made)

    def _execute(self, request: Execute) -> list[Answer]:
        script = Script(request.text, request.name)
        if request.wait:
            self.wait_for_sites(script)
        pockets = list(zip(request.pockets, request.pocket_readers, strict=True))
        return self.execute(script, request.base, request.readers, request.unnamed, pockets)

    def wait_for_sites(self, script: Script) -> None:
        """Waits until those sites are up that are being started and without which `script` cannot
        be carried out; not for ever.
        """
        needed = sites_needed(script, self._catalog.definitions(), self.sites.starting())
        self.sites.wait_for_starting(needed, START_S)
        if asks_types(script):
            self.sites.wait_for_any(START_S)

    def execute(
        self,
        script: Script,
        base: str,
        readers: Mapping[str, str] | None = None,
        unnamed: str = "",
        pockets: Sequence[tuple[Submission, str]] = (),
    ) -> list[Answer]:
        """Checks the whole script, then changes the system.

        Nothing has changed if the check raises; if a site refuses what it is asked to run, only
        what the script drops has gone. `readers` maps each new query to the name under which
        somebody is going to follow its output, from its first tuple on. `unnamed` is the name of a
        query without one, which somebody looks at and which needs no sink. `pockets` are started
        with the definitions of the script, each with the reader of its output, if any.
        """
        while True:
            known = self._catalog.definitions()
            asked = [submitted for submitted, _ in pockets]
            changes = self._checking(script, base, known, unnamed).run(asked)
            following = {**(readers or {}), **_readers(pockets, changes)}
            if self._apply(changes, known, following):
                if changes.give_up:
                    self._runtime.run(self.sites.call(*changes.give_up))
                _note_changes(changes)
                return changes.answers

    def explain(self, script: Script, base: str, *, asks_sites: bool = True) -> Answer:
        """Explains how the one query of `script` runs or would run. Nothing changes, whatever it
        says; and unless `asks_sites`, nothing happens at a site.
        """
        checking = self._checking(script, base, self._catalog.definitions())
        return checking.explain(asks_sites=asks_sites)

    def plan(self, script: Script, base: str) -> list[AnyDef]:
        """The definitions that would exist after `script`, which is not carried out."""
        known = self._catalog.definitions()
        changes = self._checking(script, base, known).run()
        kept = [one for name, one in known.items() if name not in changes.drop]
        return [*kept, *changes.add]

    def submit(self, submitted: Submission, base: str, reader: str = "") -> PocketDef:
        """Starts a pocket, with the query and the stream that it brings along. `reader` is going to
        follow its output from the first tuple on.
        """
        while True:
            known = self._catalog.definitions()
            changes = self._checking(Script(""), base, known).run([submitted])
            if self._apply(changes, known, _readers([(submitted, reader)], changes)):
                (pocket,) = [one for one in changes.add if isinstance(one, PocketDef)]
                return pocket

    def _checking(
        self, script: Script, base: str, known: dict[str, AnyDef], unnamed: str = ""
    ) -> ScriptCheck:
        return ScriptCheck(
            script,
            known,
            self.sites,
            base,
            self.sites.rows,
            self._placing,
            self._control.protector.stands_by,
            self.cluster.heartbeat_interval_us,
            self.cluster.missed_heartbeats,
            unnamed,
            reported=self._approximations.report().get,
            assignment=self._approximations.models.assignment,
            secrets=self._secrets.known(),
        )

    def _apply(
        self, changes: ScriptChanges, known: Mapping[str, AnyDef], readers: Mapping[str, str]
    ) -> bool:
        """Applies the changes. False if the facts that they were checked against have changed
        meanwhile.
        """
        self._secrets.change(changes.keep)
        done = False
        try:
            done = self._apply_kept(changes, known, readers)
        finally:
            self._forget_secrets(changes.forget if done else changes.keep)
        return done

    def _forget_secrets(self, names: Iterable[str]) -> None:
        """Forgets these secrets if nothing names them, and all unnamed secrets that nothing
        uses.
        """
        used = [*self._catalog.definitions().values(), *self._catalog.intentions().values()]
        still = {one.name for one in secrets_in(used)}
        self._secrets.change({}, set(names) - still)
        self._secrets.keep_only(used)

    def _apply_kept(
        self, changes: ScriptChanges, known: Mapping[str, AnyDef], readers: Mapping[str, str]
    ) -> bool:
        left = {name: one for name, one in known.items() if name not in changes.drop}
        marked = [self._created(one) for one in changes.add]
        add, decision = self._placing.deadlines.admit(left, marked)

        shared = [
            ApproximateResults(self._secrets.filled(one))
            for one in add
            if isinstance(one, ApproximateDef)
        ]
        for results in shared:
            results.check_anew()

        def clear() -> None:
            for results in shared:
                results.clear()

        applying = self._control.apply(add, changes.drop, known, readers, clear)
        if not self._runtime.run(applying):
            return False
        self._placing.deadlines.hurry(decision)
        for name in changes.drop:
            forget_database(known[name], self._state / "stages")
        return True

    def move(self, query: str, site: str) -> str:
        """Moves a query to another site, without loss or repetition; returns its former site."""
        was_at = self._runtime.run(self._control.move(query, site))
        note("moved", f"{query} moved from {was_at} to {site}", query=query, site=site)
        return was_at

    def stand_by(self, query: str, site: str) -> None:
        """Makes a site the standby of a query that has one, instead of the present standby."""
        self._runtime.run(self._control.stand_by(query, site))

    def move_all(self, moves: Sequence[Moved]) -> list[Moved]:
        """Moves several operators at once; one that cannot move stays."""
        return self._runtime.run(self._replacement.move(moves))

    def network_samples(self) -> Sequence[Sample]:
        """Latencies and rates as they were measured, the oldest first."""
        return self._placing.monitor.samples

    def placement_notes(self, known: dict[str, AnyDef]) -> dict[str, str]:
        """For each operator that the system places, if all this existed: why it is at its site."""
        return self._placing.notes(known)

    def replan(self, *, dry_run: bool) -> Replan:
        """Places again what runs, and moves what should be elsewhere; or only says so.
        Sub-deadlines are set again, too.
        """
        if not dry_run:
            self._placing.deadlines.renew()
        return self._runtime.run(self._replacement.run(dry_run=dry_run))

    def _look(self) -> None:
        """Compares the sites' reports with the catalog, once."""
        self._site_news.look(self.sites.alive())
        if (now := self._runtime.now()) >= self._news_due:
            self._news_due = now + NEWS_S
            known = self._catalog.definitions()
            seen = self._seen(known, ask=False)
            self._query_news.look(seen.sites, seen.states, tables_in(known))
        self._placing.look(self._runtime.now())
        self._replacement.look()

    def cost(self) -> float:
        """Σ rate · latency² of where everything is, by the newest sample."""
        return self._placing.cost()

    def settle(self) -> bool:
        """After a restart: what sites do not run of the catalog goes on where it was, and what
        cannot yet as soon as it can. Returns whether something was lacking.
        """
        return self._runtime.run(self._control.settle())

    @property
    def deploys_anew(self) -> bool:
        """Whether an `up --anew` was cut short: nothing is left that could go on."""
        return self._control.deploys_anew

    def deploy_anew(self) -> None:
        """Deploys the catalog from the beginning. Each query becomes a creation of its own, so that
        output of an earlier one never counts as its.
        """

        def clear(known: Mapping[str, AnyDef]) -> None:
            for definition in known.values():
                forget_database(definition, self._state / "stages")
                if isinstance(definition, ApproximateDef):
                    ApproximateResults(self._secrets.filled(definition)).clear()

        self._runtime.run(self._control.deploy_anew(self._created, clear))
        for name in self._catalog.definitions():
            note("created", f"{name} deployed anew, from the beginning", query=name)

    def _created(self, definition: AnyDef) -> AnyDef:
        """The definition as a creation of its own, later than all before it."""
        moment = self._catalog.next_moment(time.time_ns() // 1000)
        return with_database(_marked(definition, moment), self._state / "stages")

    def status(self, *, ask: bool = True) -> SystemStatus:
        """Every site with a fresh report, or why there is none; without `ask`, with its last
        heartbeat.
        """
        known = self._catalog.definitions()
        return system_status(
            self._seen(known, ask=ask),
            known,
            address=self.address,
            placement=self._placing.report(),
            deadlines=self._placing.deadlines.outlook(),
            approximations=self._approximations.report(),
            endings=dict(self._site_news.endings),
            troubles=self._runtime.troubles.report(self._runtime.now()),
        )

    def _seen(self, known: Mapping[str, AnyDef], *, ask: bool) -> Seen:
        control = self._control
        obstacles = control.restorer.report()
        return look(self.sites, known, control.protector, obstacles, control.wanted, ask=ask)

    def forget_sites(self) -> None:
        """Forgets the sites, which have been stopped with us: a later coordinator need not look for
        them.
        """
        self._catalog.forget_sites()

    def close(self) -> None:
        with self._runtime:
            self._replacement.close()
            self._control.close()
        self._approximations.close()
        self._gate.shutdown()
        self._peers.close()
        self._catalog.close()
        self._claim.close()


def _logged(say: Say) -> Say:
    """Puts in the log, too, what people are told."""

    def tell(line: str) -> None:
        note("told", line)
        say(line)

    return tell


def _readers(pockets: Iterable[tuple[Submission, str]], changes: ScriptChanges) -> dict[str, str]:
    """Output of a pocket → who is going to follow it, if somebody is."""
    outputs = {one.name: one.output for one in changes.add if isinstance(one, PocketDef)}
    return {outputs[submitted.name]: reader for submitted, reader in pockets if reader}


def _note_changes(changes: ScriptChanges) -> None:
    for name in changes.drop:
        note("dropped", f"{name} dropped", query=name)
    for definition in changes.add:
        note(
            "created",
            f"{definition.name} created",
            query=definition.name,
            site=getattr(definition, "site", ""),
        )


def _marked(definition: AnyDef, begun_us: int) -> AnyDef:
    """The definition with the mark of its creation. The results of a protected query stay where
    they are written, though the query may move.
    """
    if isinstance(definition, ApproximateDef):
        template = definition.template.model_copy(update={"run": run_name(begun_us, uuid4().hex)})
        return definition.model_copy(update={"template": template})
    if isinstance(definition, QueryDef):
        update: dict[str, Any] = {"run": run_name(begun_us, uuid4().hex)}
        if definition.standby:
            update["sink_site"] = settled_sink(definition)
        return definition.model_copy(update=update)
    return definition
