"""The coordinator and the sites of a cluster as programs call them. Statements that are gathered
run together, so that no tuple flows before all of them are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import WeakSet

from anabranch.api.text import Text
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.requests import AskStatus, Execute, Submit, Submitted
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError, ConfigError, ScriptError, SourceError
from anabranch.link.gate import Credentials
from anabranch.link.peer import Peer, Peers
from anabranch.plan.spec import Submission

_PLACE = re.compile(r"(.*):(\d+):(\d+)", re.DOTALL)


class Gathered:
    """The statements that `with cluster.script():` has collected so far."""

    def __init__(self) -> None:
        self._statements: list[Text] = []
        self._readers: dict[str, str] = {}
        self._pockets: list[Submission] = []
        self._pocket_readers: list[str] = []
        self._after: list[Callable[[], None]] = []

    def statement(self, text: Text, readers: Mapping[str, str], after: Callable[[], None]) -> None:
        """Adds a statement. `after` is called once it is carried out."""
        text.checked()
        self._statements.append(text)
        self._readers |= readers
        self._after.append(after)

    def pocket(self, submitted: Submission, reader: str, after: Callable[[], None]) -> None:
        self._pockets.append(submitted)
        self._pocket_readers.append(reader)
        self._after.append(after)

    @property
    def text(self) -> str:
        """The script that all statements make up."""
        return ";\n".join(str(one) for one in self._statements)

    @property
    def readers(self) -> Mapping[str, str]:
        """Maps each query to the reader that will follow it."""
        return self._readers

    @property
    def pockets(self) -> list[tuple[Submission, str]]:
        """The pockets, each with the reader that will follow its output, if any."""
        return list(zip(self._pockets, self._pocket_readers, strict=True))

    @property
    def is_empty(self) -> bool:
        return not self._after

    def begin(self) -> None:
        """Starts the readers, once all of it has been carried out."""
        for after in self._after:
            after()

    def blamed(self, error: ScriptError) -> ScriptError:
        """Turns the error of the whole script into one about the argument that it concerns."""
        match = _PLACE.fullmatch(error.place)
        if match is None:
            return error
        line = int(match[2])
        for text in self._statements:
            lines = str(text).count("\n") + 1
            if line <= lines:
                at = f"{match[1]}:{line}:{match[3]}"
                return text.blamed(
                    ScriptError(error.message, place=at, remedy=error.remedy, excerpt=error.excerpt)
                )
            line -= lines
        return error


def not_yet(what: str) -> ConfigError:
    return ConfigError(
        f"{what} does not run yet", remedy="Read its results after the `with cluster.script():`."
    )


EXECUTE_S = 300.0
"""Deploying takes long: each site builds its part."""


class CatalogEntry(NamedTuple):
    """The catalog's entry for a name."""

    kind: str
    name: str
    site: str


class Closing(Protocol):
    """Something that works in the background for a reader and ends with the client."""

    def close(self) -> None: ...

    def join(self) -> None: ...


class Client:
    """Relative paths start from the folder that is the current one when they are given."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._coordinator = Peer("the coordinator", address, credentials)
        self._peers = Peers(credentials)
        self.readers: WeakSet[Closing] = WeakSet()
        self.gathered: Gathered | None = None
        """What is to be carried out together, while it is gathered."""
        self._known: dict[str, str] = {}
        self._assignments: dict[str, tuple[str, str | None]] = {}

    def execute(
        self, statement: Text, *, readers: Mapping[str, str] | None = None, base: str = ""
    ) -> Answer:
        """The coordinator's answer to one statement. Raises the error of the argument that is
        wrong.
        """
        text = statement.checked()
        try:
            (answer,) = self.script(text, readers=readers, base=base)
        except ScriptError as error:
            raise statement.blamed(error) from None
        return answer

    def script(
        self,
        text: str,
        *,
        readers: Mapping[str, str] | None = None,
        base: str = "",
        unnamed: str = "",
        wait: bool = True,
        pockets: Sequence[tuple[Submission, str]] = (),
    ) -> Sequence[Answer]:
        """The answers to a script. A query without a name gets the name `unnamed`, and no sink is
        added. `wait` is the time to wait for sites that are being started. `pockets` are started
        with the script, each with the reader that follows its output, if any.
        """
        request = Execute(
            text,
            name="sql",
            base=base or str(Path.cwd()),
            wait=wait,
            readers=dict(readers or {}),
            unnamed=unnamed,
            pockets=tuple(one for one, _ in pockets),
            pocket_readers=tuple(reader for _, reader in pockets),
        )
        return self._coordinator.send(request, EXECUTE_S)

    def carry_out(self, gathered: Gathered) -> None:
        """Carries out all of it, or nothing. Raises the error of the argument that is wrong."""
        if gathered.is_empty:
            return
        try:
            self.script(gathered.text, readers=gathered.readers, pockets=gathered.pockets)
        except ScriptError as error:
            raise gathered.blamed(error) from None
        gathered.begin()

    def submit(self, pocket: Submission, reader: str) -> Submitted:
        return self._coordinator.send(Submit(pocket, str(Path.cwd()), reader), EXECUTE_S)

    def status(self) -> SystemStatus:
        status = self._coordinator.send(AskStatus())
        self._known = {one.site: one.address for one in status.sites}
        self._assignments = {
            name: (one.site, one.standby) for name, one in status.protection.items()
        }
        self._peers.update(self._known)
        return status

    def find(self, name: str) -> CatalogEntry:
        """The entry of this name. Raises ConfigError if there is no such stream, table or query."""
        answers = self.script("SHOW STREAMS; SHOW TABLES; SHOW QUERIES;")
        known = [
            CatalogEntry(kind, row[0], row[1])
            for kind, answer in zip(("stream", "table", "query"), answers, strict=True)
            for row in answer.rows
        ]
        for definition in known:
            if definition.name.lower() == name.lower():
                return definition
        names = ", ".join(one.name for one in known) or "none"
        raise ConfigError(f"there is no '{name}'", remedy=f"There are: {names}.")

    def site(self, name: str) -> Peer:
        """The site at its last known address; see `refresh`."""
        if name not in self._known:
            self.refresh()
        return self._peers[name]

    def assignment(self, stream: str) -> tuple[str, str | None] | None:
        """The sites that run and stand by for a protected query; None for any other stream."""
        return self._assignments.get(stream)

    def refresh(self) -> None:
        """Learns where the sites are now, if the coordinator can say."""
        with suppress(AnabranchError):
            self.status()

    def trouble(self, stream: str) -> AnabranchError | None:
        """Why `stream` will bring nothing more: the stream or something that it reads has failed or
        is gone.
        """
        status = self.status()
        reads: dict[str, set[str]] = {}
        for name, inputs in (*status.reads.items(), *status.ends.items()):
            reads.setdefault(name, set()).update(inputs)
        if stream not in reads and stream not in status.streams:
            return SourceError(f"{stream} was dropped")
        upstream, rest = {stream}, [stream]
        while rest:
            new = reads.get(rest.pop(), set()) - upstream
            upstream |= new
            rest += new
        for source in status.sources():
            if source.error and source.stream in upstream:
                return source.error.error()
        for task in status.tasks():
            named = {task.output} if task.sink else {task.output, task.query}
            if task.error and named & upstream and task.role != "standby":
                return task.error.error()
        return None

    def close(self) -> None:
        readers = list(self.readers)
        for reader in readers:
            reader.close()
        for reader in readers:
            reader.join()
        self._peers.close()
        self._coordinator.close()
