"""What the faces may ask of a running system; the coordinator's own functions, and readers."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anabranch.api.client import Client
from anabranch.api.reader import Reader
from anabranch.api.results import reader_name
from anabranch.coordinator.control.coordinator import Coordinator
from anabranch.coordinator.control.processes import signal_process
from anabranch.coordinator.placement.replan import Replan
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError, ConfigError, SiteError
from anabranch.face.events import Difference
from anabranch.face.report import report_html
from anabranch.face.stories import stories
from anabranch.face.watch import Watch
from anabranch.language.source import Script

_SHORT = 200


class System:
    """One per coordinator. Relative paths in statements start from `base`."""

    def __init__(self, coordinator: Coordinator, base: Path) -> None:
        self.coordinator = coordinator
        self._base = str(base)
        self._client = Client(coordinator.address, coordinator.credentials)
        self.watch = Watch(lambda: coordinator.status(ask=False))
        self.statements: deque[str] = deque(maxlen=50)
        """What was executed here, the newest first."""

    def start(self) -> None:
        self.watch.start()

    def close(self) -> None:
        self.watch.close()
        self._client.close()

    def execute(self, text: str) -> list[Answer]:
        script = Script(text, "sql")
        self.coordinator.wait_for_sites(script)
        answers = self.coordinator.execute(script, self._base)
        if text not in self.statements:
            self.statements.appendleft(text)
        self.watch.tell(Difference(kind="statement", text=_in_short(text)))
        self.watch.step()
        return answers

    def move(self, query: str, site: str) -> str:
        """The site it was at."""
        return self.coordinator.move(query, site)

    def would_move(self) -> str:
        return _replan_text(self.coordinator.replan(dry_run=True), "would move")

    def replan(self) -> str:
        """Place again what runs, and move what should be elsewhere."""
        return _replan_text(self.coordinator.replan(dry_run=False), "moved")

    def stop(self) -> None:
        self.coordinator.stop_asked.set()

    def kill(self, site: str) -> int:
        """End the process of a site on this machine at once, as a failure would. The process."""
        status = self.coordinator.status(ask=False)
        try:
            killed = signal_process(site, signal.SIGKILL, status)
        except SiteError as error:  # the request is wrong, no site is
            raise ConfigError(error.message, remedy=error.remedy) from None
        self.watch.tell(Difference(kind="kill", text=f"site {site} was killed", site=site))
        return killed

    def definition(self, name: str) -> Answer:
        """The statement that made it, and its columns."""
        script = Script(f"DESCRIBE {_quoted(name)};", "sql")
        (answer,) = self.coordinator.execute(script, self._base)
        return answer

    def explain(self, text: str) -> Answer:
        """Of one query, as it is or as it would be. Nothing changes, whatever the text says."""
        return self.coordinator.explain(Script(text, "sql"), self._base)

    def explain_query(self, name: str) -> Answer:
        return self.explain(f"EXPLAIN {_quoted(name)};")

    def site_report(self, name: str) -> dict[str, Any]:
        """What a site's last heartbeat brought."""
        record = self.coordinator.sites.record(name)
        if record is None or not record.report or name not in self.coordinator.sites.alive():
            raise ConfigError(f"site {name} is not up")
        report: dict[str, Any] = record.report
        return report

    def report(self) -> str:
        """The last ten minutes as one HTML page."""
        plans = {}
        for query in self.watch.now.queries:
            if query.kind == "query":
                with suppress(AnabranchError):
                    plans[query.name] = self.explain_query(query.name).text
        return report_html(list(self.watch.history), stories(self.watch.events), plans)

    @contextmanager
    def tail(self, stream: str) -> Iterator[Reader]:
        """Follow a stream from now on. What is not taken in time is not waited for."""
        found = self._client.find(stream)
        if found.kind == "table":
            raise ConfigError(f"{stream} is a table", remedy="Tail a query that reads it.")
        reader = Reader(self._client, found.name, found.site, reader_name(), True)
        try:
            yield reader
        finally:
            reader.close()

    def rows_of(self, reader: Reader, most: int, timeout_s: float) -> list[dict[str, Any]] | None:
        """The next tuples, at most `most`; none after the timeout; None at the end."""
        try:
            batch = reader.next(timeout_s)
        except TimeoutError:
            return []
        if batch is None:
            return None
        rows: list[dict[str, Any]] = batch.slice(max(0, batch.num_rows - most)).to_pylist()
        return rows


def _in_short(text: str) -> str:
    """Statements without their comments, on one line, as far as there is room."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    line = " ".join(" ".join(lines).split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]} …"


def _replan_text(found: Replan, verb: str) -> str:
    if not found.moves:
        return "Everything is where it should be."
    moves = "; ".join(one.problem or f"{one.task} {verb} from {one.was_at} to {one.site}"
                      for one in found.moves)  # fmt: skip
    return f"{moves}: {found.saved:.0%} of the cost saved"


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
