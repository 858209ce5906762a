"""The sites that a coordinator knows: where they are, when it last heard of them, what they
report.
"""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.secrets import Secrets
from anabranch.errors import AnabranchError, CannotResume, Refused, SiteError
from anabranch.link.message import A, Message, Order, plain, read
from anabranch.link.messages import Ping
from anabranch.link.network import Network
from anabranch.link.peer import Peer, Peers
from anabranch.link.reports import SiteReport, StateFolderReport, TaskReport
from anabranch.plan.catalog import AnyDef, QueryDef
from anabranch.runtime.base import Runtime

M = TypeVar("M")

CALL_S = 10.0
ASK_S = 1.5
"""How long one that hangs holds others up, once."""
PING_S = 1.0
PREPARE_S = 120.0
"""How long a site may take over what Spark has a part in."""


@dataclass
class SiteRecord:
    address: str
    pid: int
    heard: float
    report: SiteReport | None = None
    """What it said last, to us: not to a coordinator before us."""
    silent: bool = False
    """It has not answered since we heard of it."""

    @property
    def tasks(self) -> tuple[TaskReport, ...]:
        return self.report.tasks if self.report else ()


class Sites:
    """Registers sites by their heartbeats; the addresses survive a restart of the coordinator."""

    def __init__(
        self,
        catalog: Catalog,
        runtime: Runtime,
        network: Network,
        peers: Peers,
        gone_after_s: float,
        expected: Iterable[str] = (),
        secrets: Secrets | None = None,
    ) -> None:
        """`expected` are the sites of the cluster file, whether or not they have come. `peers` are
        for threads that may wait for an answer. Messages are sent with the values of their
        `secrets`.
        """
        self._secrets = secrets or Secrets()
        self.expected = frozenset(expected)
        self._catalog = catalog
        self._runtime = runtime
        self._network = network
        self._peers = peers
        self._gone_after_s = gone_after_s
        self._records: dict[str, SiteRecord] = {}
        self._starting: dict[str, float] = {}
        self._states: dict[str, StateFolderReport | None] = {}
        """The folders that sites keep their state in, as it is remembered."""
        self._changed = threading.Condition()
        for name, (address, pid) in catalog.sites().items():
            self._records[name] = SiteRecord(address, pid, heard=float("-inf"))
            self._peers.update({name: address})

    def heartbeat(self, report: SiteReport) -> dict[str, str]:
        """Takes a site's heartbeat; the answer says where all the others are."""
        name, address, pid = report.site, report.address, report.pid
        with self._changed:
            self._heard_of_state(name, report.folder)
            known = self._records.get(name)
            if known is None or (known.address, known.pid) != (address, pid):
                self._catalog.remember_site(name, address, pid)
                self._peers.update({name: address})
            self._records[name] = SiteRecord(address, pid, self._runtime.now(), report)
            self._starting.pop(name, None)
            self._changed.notify_all()
            return {other: record.address for other, record in self._records.items()}

    def _heard_of_state(self, name: str, state: StateFolderReport | None) -> None:
        """Takes note of a site's folder. Its first folder counts as its own; another one does once
        nothing is expected there.
        """
        known = self._state_of(name)
        if state and state != known and (known is None or not self._expects_state(name)):
            self._remember_state(name, state)

    def _expects_state(self, name: str) -> bool:
        return any(name in _sites_of(one) for one in self._catalog.definitions().values())

    def _state_of(self, name: str) -> StateFolderReport | None:
        if name not in self._states:
            text = self._catalog.setting(_state_setting(name))
            self._states[name] = read(StateFolderReport, json.loads(text)) if text else None
        return self._states[name]

    def _remember_state(self, name: str, state: StateFolderReport) -> None:
        self._catalog.remember(_state_setting(name), json.dumps(plain(state)))
        self._states[name] = state

    def accept_states(self) -> None:
        """Accepts the folders that sites have now, because everything begins from the beginning."""
        with self._changed:
            for name, record in self._records.items():
                if record.report and record.report.folder:
                    self._remember_state(name, record.report.folder)

    def check_state(self, name: str) -> None:
        """Raises CannotResume if a site has another folder than the one that holds what it must go
        on with.
        """
        record = self._records.get(name)
        state = record.report.folder if record and record.report else None
        known = self._state_of(name)
        if state and known and state.id != known.id:
            remedy = "Start it with --state and that folder"
            if state.place == known.place:
                remedy = (
                    f"If only its file identity was lost or damaged, stop the site, write"
                    f" {known.id} into that file, and start it again"
                )
            raise CannotResume(
                f"site {name} keeps its state in {state.place} (folder {state.id}), and what"
                f" it is to go on with is in {known.place} (folder {known.id})",
                remedy=f"{remedy}; or drop what runs there; or let all begin anew:"
                " anabranch up --anew.",
            )

    def starts(self, name: str) -> None:
        """Takes note that a site has just been started, for the first time or again."""
        with self._changed:
            self._starting[name] = self._runtime.now()
            self.died(name)

    def died(self, name: str) -> None:
        """Takes note that it is not alive, however lately it was heard of."""
        if record := self._records.get(name):
            record.heard = float("-inf")

    def starting(self) -> dict[str, float]:
        """Sites that are being started → for how many seconds so far."""
        now = self._runtime.now()
        with self._changed:
            return {name: now - since for name, since in self._starting.items()}

    def wait_for_starting(self, names: Iterable[str], timeout_s: float) -> None:
        """Waits until none of these is starting any more, or that takes too long."""
        wanted = set(names)
        with self._changed:
            self._changed.wait_for(lambda: not wanted & self._starting.keys(), timeout_s)

    def wait_for_any(self, timeout_s: float) -> None:
        """Waits until a site is up, if any is starting, or that takes too long."""
        with self._changed:
            self._changed.wait_for(lambda: self.alive() or not self._starting, timeout_s)

    def alive(self) -> list[str]:
        """The sites that were heard of recently."""
        oldest = self._runtime.now() - self._gone_after_s
        with self._changed:
            return [name for name, record in self._records.items() if record.heard >= oldest]

    def record(self, name: str) -> SiteRecord | None:
        return self._records.get(name)

    def forget(self, site: str, sources: Collection[str], tasks: Collection[str]) -> None:
        """Forgets measurements of these, which are dropped: they say nothing about later ones of
        the same names.
        """
        with self._changed:
            record = self._records.get(site)
            if record and record.report:
                record.report = replace(
                    record.report,
                    sources=tuple(s for s in record.report.sources if s.stream not in sources),
                    tasks=tuple(task for task in record.report.tasks if task.name not in tasks),
                )

    def names(self) -> list[str]:
        return list(self._records)

    def addresses(self) -> dict[str, str]:
        with self._changed:
            return {name: record.address for name, record in self._records.items()}

    def rows(self) -> list[tuple[str, ...]]:
        """The rows of SHOW SITES: name, address and state of the sites that are here, were, or are
        to come.
        """
        alive, starting, addresses = self.alive(), self.starting(), self.addresses()
        states = dict.fromkeys(addresses, "unreachable")
        states |= dict.fromkeys(self.expected - addresses.keys(), "not joined")
        states |= {name: is_starting(since).removeprefix("is ") for name, since in starting.items()}
        states |= dict.fromkeys(alive, "up")
        return [(name, addresses.get(name, ""), states[name]) for name in sorted(states)]

    def wait_for(self, name: str, timeout_s: float) -> bool:
        """Waits for `name`. True once it has been heard of, False if that takes too long."""
        deadline = self._runtime.now() + timeout_s
        with self._changed:
            while name not in self._records or self._records[name].heard == float("-inf"):
                if not self._changed.wait(max(0.0, deadline - self._runtime.now())):
                    return False
        return True

    def peer(self, name: str) -> Peer:
        """Raises SiteError for a site that is not known."""
        if name not in self._records:
            raise unknown_site(name, self._records)
        return self._peers[name]

    def heard_of(self, name: str) -> bool:
        """Whether it is here, was here, is starting or is in the cluster file."""
        return name in self._records or name in self.expected or name in self.starting()

    def absence(self, name: str) -> tuple[str, str]:
        return absence(name, self.starting(), self._records, self.expected)

    async def call(self, site: str, message: Message[A], seconds: float = CALL_S) -> A:
        """The answer of a site. Raises SiteError for one that is not known or does not answer."""
        record = self._records.get(site)
        if record is None:
            raise unknown_site(site, self._records)
        message = self._secrets.filled(message)
        try:
            if isinstance(message, Order):
                message = replace(message, origin=self._catalog.origin)
            return await self._network.call(site, message, seconds)
        except Refused:
            raise
        except SiteError:
            if seconds >= ASK_S:
                record.silent = True
            raise

    def filled(self, message: M) -> M:
        """The message with the values of its secrets, as `call` sends it."""
        return self._secrets.filled(message)

    async def reach(self, site: str, message: Message[A]) -> A:
        """Calls a site whose answer is not essential: a site that hangs is not waited for twice."""
        if self.silent(site):
            raise SiteError(f"site {site} does not answer")
        return await self.call(site, message, ASK_S)

    def silent(self, site: str) -> bool:
        """Whether it has failed to answer since we last heard of it."""
        record = self._records.get(site)
        return record is not None and record.silent

    async def ask(self, message: Message[A]) -> dict[str, A]:
        """The answers of all sites that answer. All are asked at once: a site that hangs delays no
        other, and is not asked again before we hear of it.
        """
        names = [name for name in self.alive() if not self._records[name].silent]
        outcomes = await self._runtime.outcomes([self.call(one, message, ASK_S) for one in names])
        return {
            name: one
            for name, one in zip(names, outcomes, strict=True)
            if not isinstance(one, AnabranchError)
        }

    def together(self, site: str, other: str) -> bool:
        """Whether they share a process, and would die together."""
        first, second = self._records.get(site), self._records.get(other)
        if first is None or second is None:
            return site == other
        return _process(first) == _process(second)

    def any(self) -> Peer:
        """A site that answers questions about Spark SQL; for a thread that may wait."""
        for name in sorted(self.alive(), key=lambda one: self._records[one].silent):
            peer = self._peers[name]
            try:
                peer.send(Ping(), PING_S)
            except SiteError:
                continue
            return peer
        raise none_up(self.starting())

    def close(self) -> None:
        self._peers.close()


def absence(
    name: str, starting: Mapping[str, float], joined: Collection[str], expected: Collection[str]
) -> tuple[str, str]:
    """Why a site is not alive, and what to do. `joined` have been here, `expected` are in the
    cluster file.
    """
    if name in starting:
        return f"site {name} {is_starting(starting[name])}", "Try again in a moment."
    if name in joined:
        return f"site {name} is not reachable", "Start it, or choose another."
    if name in expected:
        remedy = f"Start it on its machine: anabranch site {name} --coordinator …"
        return f"site {name} has not joined yet", remedy
    return f"unknown site '{name}'", nearest(name, {*joined, *expected}, "Known sites")


def none_up(starting: Mapping[str, float]) -> SiteError:
    if not starting:
        remedy = "Start one with `anabranch up` or `anabranch site`."
        return SiteError("no site is up", remedy=remedy)
    which = ", ".join(f"{name} {is_starting(since)}" for name, since in sorted(starting.items()))
    return SiteError(f"no site is up yet: {which}", remedy="Try again in a moment.")


def is_starting(seconds: float) -> str:
    return f"is starting ({seconds:.0f} s so far)"


def _sites_of(definition: AnyDef) -> set[str | None]:
    """The sites where something of it runs."""
    nodes = definition.nodes if isinstance(definition, QueryDef) else ()
    names = [definition, *nodes]
    return {getattr(one, "site", None) for one in names} | {getattr(definition, "sink_site", None)}


def _state_setting(site: str) -> str:
    return f"state of {site}"


def _process(record: SiteRecord) -> tuple[str, int]:
    return record.address.rpartition(":")[0], record.pid


def unknown_site(name: str, known: Any) -> SiteError:
    return SiteError(f"unknown site '{name}'", remedy=nearest(name, known, "Known sites"))


def nearest(name: str, known: Any, title: str) -> str:
    """`Did you mean …?`, or the list of existing names."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), [one.lower() for one in names], n=1)
    if close:
        return f"Did you mean '{next(one for one in names if one.lower() == close[0])}'?"
    return f"{title}: {', '.join(names)}." if names else f"{title}: none."
