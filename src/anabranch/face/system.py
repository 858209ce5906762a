"""What the faces may ask of a running system; the coordinator's own functions, and readers."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from anabranch.api.client import Client
from anabranch.api.reader import Reader
from anabranch.api.results import reader_name
from anabranch.coordinator.base.reports import Replan
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.processes import signal_process
from anabranch.errors import AnabranchError, ConfigError, SiteError
from anabranch.face.events import Difference
from anabranch.face.report import report_html
from anabranch.face.sessions import (
    MOST_EVENTS,
    MOST_EVENTS_EACH,
    MOST_TAILS,
    MOST_TAILS_EACH,
    TAIL_BYTES,
    Seats,
    Sessions,
)
from anabranch.face.stories import stories
from anabranch.face.watch import Watch
from anabranch.language.source import Script
from anabranch.link.reports import SiteReport

_SHORT = 200
P = ParamSpec("P")
T = TypeVar("T")


class System:
    """One per coordinator. Relative paths in statements start from `base`."""

    def __init__(self, coordinator: Coordinator, base: Path) -> None:
        self.coordinator = coordinator
        self._base = str(base)
        self._client = Client(coordinator.address, coordinator.credentials)
        self.watch = Watch(lambda: coordinator.status(ask=False))
        self.followers = Seats("requests that follow events", MOST_EVENTS, MOST_EVENTS_EACH)
        self.sessions = Sessions()
        self._tails = Seats("tails", MOST_TAILS, MOST_TAILS_EACH)
        self._tail_threads = ThreadPoolExecutor(MOST_TAILS, "tail")
        self.statements: deque[str] = deque(maxlen=50)
        """What was executed here, the newest first."""

    def start(self) -> None:
        self.watch.start()

    def close(self) -> None:
        self.watch.close()
        self._tail_threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def execute(self, text: str) -> list[Answer]:
        script = Script(text, "sql")
        self.coordinator.wait_for_sites(script)
        answers = self.coordinator.execute(script, self._base)
        if text not in self.statements and not script.passwords:
            self.statements.appendleft(text)
        self.watch.tell(Difference(kind="statement", text=_in_short(script.shown())))
        self.watch.step()
        return answers

    def move(self, query: str, site: str) -> str:
        """Moves the query. Returns the site that it was at."""
        return self.coordinator.move(query, site)

    def would_move(self) -> str:
        return _replan_text(self.coordinator.replan(dry_run=True), "would move")

    def replan(self) -> str:
        """Places again what runs, and moves what should be elsewhere."""
        return _replan_text(self.coordinator.replan(dry_run=False), "moved")

    def stop(self) -> None:
        self.coordinator.stop_asked.set()

    def kill(self, site: str) -> int:
        """Ends the process of a site on this machine at once, as a failure would. Returns its
        number.
        """
        status = self.coordinator.status(ask=False)
        try:
            killed = signal_process(site, signal.SIGKILL, status)
        except SiteError as error:  # the request is wrong, no site is
            raise ConfigError(error.message, remedy=error.remedy) from None
        self.watch.tell(Difference(kind="kill", text=f"site {site} was killed", site=site))
        return killed

    def definition(self, name: str) -> Answer:
        """The statement that created it, and its columns."""
        script = Script(f"DESCRIBE {_quoted(name)};", "sql")
        (answer,) = self.coordinator.execute(script, self._base)
        return answer

    def explain(self, text: str, *, asks_sites: bool = True) -> Answer:
        """Explains one query, as it is or as it would be. Nothing changes, whatever the text says.
        If no site may be asked, only existing queries are explained, from what their sites have
        reported.
        """
        return self.coordinator.explain(Script(text, "sql"), self._base, asks_sites=asks_sites)

    def explain_query(self, name: str) -> Answer:
        """Explains how it runs. No site is asked."""
        return self.explain(f"EXPLAIN {_quoted(name)};", asks_sites=False)

    def site_report(self, name: str) -> SiteReport:
        """The content of a site's last heartbeat."""
        record = self.coordinator.sites.record(name)
        if record is None or not record.report or name not in self.coordinator.sites.alive():
            raise ConfigError(f"site {name} is not up")
        return record.report

    def report(self) -> str:
        """The last ten minutes as one HTML page."""
        plans = {}
        for query in self.watch.now.queries:
            if query.kind == "query":
                with suppress(AnabranchError):
                    plans[query.name] = self.explain_query(query.name).text
        return report_html(list(self.watch.history), stories(self.watch.events), plans)

    @contextmanager
    def tail(self, stream: str, client: str) -> Iterator[Reader]:
        """Follows a stream from now on. Tuples that are not taken in time are dropped. Raises
        TooMany if there are enough tails, in total or of this client.
        """
        with self._tails.taken(client):
            yield from self._tail(stream)

    def _tail(self, stream: str) -> Iterator[Reader]:
        entry = self._client.find(stream)
        if entry.kind == "table":
            raise ConfigError(f"{stream} is a table", remedy="Tail a query that reads it.")
        reader = Reader(
            self._client, entry.name, entry.site, reader_name(), True, spare_bytes=TAIL_BYTES
        )
        try:
            yield reader
        finally:
            reader.close()

    async def in_tail(self, do: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Calls a blocking function in a thread of the tails, so that it delays nobody else."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tail_threads, lambda: do(*given, **named))

    def rows_of(
        self, reader: Reader, most: int, timeout_s: float
    ) -> list[dict[str, object]] | None:
        """The next tuples, at most `most`; an empty list after the timeout; None at the end."""
        try:
            batch = reader.next(timeout_s)
        except TimeoutError:
            return []
        if batch is None:
            return None
        rows: list[dict[str, object]] = batch.slice(max(0, batch.num_rows - most)).to_pylist()
        return rows


def _in_short(text: str) -> str:
    """The error for a question about a partition that a broker did not answer."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    line = " ".join(" ".join(lines).split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]} …"


def _replan_text(replan: Replan, verb: str) -> str:
    if not replan.moves:
        return "Everything is where it should be."
    moves = "; ".join(
        one.problem or f"{one.task} {verb} from {one.was_at} to {one.site}" for one in replan.moves
    )
    return f"{moves}: {replan.saved:.0%} of the cost saved"


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
