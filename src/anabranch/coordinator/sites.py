"""The sites a coordinator knows: where they are, when it heard of them last, what they report."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from anabranch.coordinator.catalog import Catalog
from anabranch.errors import AnabranchError, SiteError
from anabranch.link.gate import Credentials
from anabranch.link.peer import Peer, Peers

ASK_S = 2.0


@dataclass
class SiteRecord:
    address: str
    pid: int
    heard: float
    report: dict[str, Any] = field(default_factory=dict)


class Sites:
    """Registers by heartbeat; the addresses survive a restart of the coordinator."""

    def __init__(
        self,
        catalog: Catalog,
        credentials: Credentials,
        gone_after_s: float,
        expected: Iterable[str] = (),
    ) -> None:
        """`expected`: those of the cluster file, whether or not they have come."""
        self.expected = frozenset(expected)
        self._catalog = catalog
        self._peers = Peers(credentials)
        self._gone_after_s = gone_after_s
        self._records: dict[str, SiteRecord] = {}
        self._changed = threading.Condition()
        for name, (address, pid) in catalog.sites().items():
            self._records[name] = SiteRecord(address, pid, heard=float("-inf"))
            self._peers.update({name: address})

    def heartbeat(self, report: dict[str, Any]) -> dict[str, str]:
        """A site is there and says what it does; the answer is where all the others are."""
        name, address, pid = report["site"], report["address"], report["pid"]
        with self._changed:
            known = self._records.get(name)
            if known is None or (known.address, known.pid) != (address, pid):
                self._catalog.remember_site(name, address, pid)
                self._peers.update({name: address})
            self._records[name] = SiteRecord(address, pid, time.monotonic(), report)
            self._changed.notify_all()
            return {other: record.address for other, record in self._records.items()}

    def alive(self) -> list[str]:
        """Sites heard of recently."""
        oldest = time.monotonic() - self._gone_after_s
        with self._changed:
            return [name for name, record in self._records.items() if record.heard >= oldest]

    def record(self, name: str) -> SiteRecord | None:
        return self._records.get(name)

    def names(self) -> list[str]:
        return list(self._records)

    def addresses(self) -> dict[str, str]:
        with self._changed:
            return {name: record.address for name, record in self._records.items()}

    def wait_for(self, name: str, timeout_s: float) -> bool:
        """True once `name` has been heard of, False if that takes too long."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while name not in self._records or self._records[name].heard == float("-inf"):
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return False
        return True

    def peer(self, name: str) -> Peer:
        """Raises SiteError for a site that is not known."""
        if name not in self._records:
            raise unknown_site(name, self._records)
        return self._peers[name]

    def ask(self, names: Iterable[str], action: str, **body: Any) -> dict[str, Any]:
        """The answers of those that answer, all asked at once: one that hangs holds up none."""
        asked = list(dict.fromkeys(names))

        def one(name: str) -> Any:
            with suppress(AnabranchError):
                return self.peer(name).call(action, timeout_s=ASK_S, **body), True
            return None, False

        with ThreadPoolExecutor(max_workers=max(1, min(16, len(asked)))) as pool:
            answers = zip(asked, pool.map(one, asked), strict=True)
        return {name: answer for name, (answer, came) in answers if came}

    def together(self, one: str, other: str) -> bool:
        """They share a process, and would die together."""
        first, second = self._records.get(one), self._records.get(other)
        if first is None or second is None:
            return one == other
        return _process(first) == _process(second)

    def any(self) -> Peer:
        """A site that answers questions about Spark SQL."""
        alive = self.alive()
        if not alive:
            raise SiteError(
                "no site is up", remedy="Start one with `anabranch up` or `anabranch site`."
            )
        return self._peers[alive[0]]

    def close(self) -> None:
        self._peers.close()


def _process(record: SiteRecord) -> tuple[str, int]:
    return record.address.rpartition(":")[0], record.pid


def unknown_site(name: str, known: Any) -> SiteError:
    return SiteError(f"unknown site '{name}'", remedy=nearest(name, known, "Known sites"))


def nearest(name: str, known: Any, title: str) -> str:
    """`Did you mean …?`, or the list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), [one.lower() for one in names], n=1)
    if close:
        return f"Did you mean '{next(one for one in names if one.lower() == close[0])}'?"
    return f"{title}: {', '.join(names)}." if names else f"{title}: none."
