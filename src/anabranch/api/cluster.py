"""A cluster in a program's hands: started by it, or one that runs already."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import SparkSession

from anabranch.api.client import Client, Gathered
from anabranch.api.queries import Query
from anabranch.api.relations import RunningPocket, Stream, Table
from anabranch.api.results import Answers, Timeout, reader_name, seconds, table
from anabranch.api.text import Duration, SinkCall, SourceCall, Text, call_text, duration
from anabranch.api.text import name as written
from anabranch.config.cluster import ClusterConfig, load_cluster
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.service.state import endpoint_in
from anabranch.coordinator.status.description import primaries, task_and_sink
from anabranch.coordinator.status.query_states import failures, idle
from anabranch.errors import AnabranchError, ConfigError, SiteError
from anabranch.link.message import plain
from anabranch.pocket import Pocket
from anabranch.site.programs.submission import pickled, submission
from anabranch.spark.session import guest_session


def place_of(class_: type) -> tuple[str, str]:
    """The folder and the 'module:Class' that a site loads. Raises ConfigError if it cannot."""
    place = "aggregate(class_)"
    if not isinstance(class_, type):
        raise ConfigError(f"{class_!r} is no class", place=place)
    module = sys.modules.get(class_.__module__)
    remedy = "Put it into a file of its own, import it from there, and give it then."
    if class_.__module__ == "__main__" or module is None:
        message = f"{class_.__qualname__} is defined in a notebook or in the script that runs"
        raise ConfigError(message, place=place, remedy=remedy)
    if getattr(module, class_.__qualname__, None) is not class_:
        message = f"{class_.__qualname__} is not at the top of its module {class_.__module__}"
        raise ConfigError(message, place=place, remedy=remedy)
    try:
        file = Path(inspect.getfile(class_)).resolve()
    except (TypeError, OSError):
        message = f"{class_.__qualname__} has no file that a site could load"
        raise ConfigError(message, place=place, remedy=remedy) from None
    parts = class_.__module__.split(".")
    depth = len(parts) if file.name == "__init__.py" else len(parts) - 1
    return str(file.parents[depth]), f"{class_.__module__}:{class_.__qualname__}"


if TYPE_CHECKING:
    pass

__all__ = ["Cluster", "SinkCall"]


class Cluster:
    """Made by `Cluster.local` or `Cluster.connect`; a context manager.

    >>> with Cluster.local("room1", "centre") as cluster:  # doctest: +SKIP
    ...     cluster.stream("ticks", {"value": "BIGINT"}, at="room1", source=source("rate", tps=10))
    """

    def __init__(self, client: Client, close: Callable[[], None] = lambda: None) -> None:
        self._client = client
        self._close = close

    @classmethod
    def local(
        cls,
        *sites: str,
        file: str | Path | None = None,
        spark: SparkSession | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> Self:
        """A coordinator and sites that live as long as this object: `sites` in this process, or
        those of a cluster `file`. They share `spark`, or a session that is active here, and leave
        it running; without either they start one of their own."""
        # Only now: who connects to a system needs nothing of what runs one.
        from anabranch.coordinator.service.temporary import TemporarySystem

        if bool(sites) == (file is not None):
            raise ConfigError("local takes the names of sites or a file", place="Cluster.local")
        config = load_cluster(Path(file)) if file else ClusterConfig.of_sites(sites)
        shared = spark or SparkSession.getActiveSession()
        guest = guest_session(shared) if shared else None
        system = TemporarySystem(config, progress, spark=guest)
        client = Client(system.coordinator.address, system.credentials)
        return cls(client, system.close)

    @classmethod
    def connect(cls, state: str | Path = ".anabranch") -> Self:
        """The system that `anabranch up` has started with this state folder."""
        cluster = cls(Client(*endpoint_in(Path(state))))
        cluster.status()
        return cluster

    def stream(
        self,
        name: str,
        columns: Mapping[str, str],
        *,
        at: str | None = None,
        source: SourceCall | None = None,
        timestamp: str | None = None,
        unit: str | None = None,
        lateness: Duration | None = None,
        ahead: Duration | None = None,
        shed: str | None = None,
    ) -> Stream:
        """CREATE STREAM. `columns` are names and Spark SQL types. Without `source` the program
        pushes tuples into it, or a pocket fills it. `unit` is that of event times which are whole
        numbers: "s", "ms", "us" or "ns". `shed` is a limit and what to keep: "1000/s KEEP BY
        speed".

        >>> cluster.stream("s", {"Temp": "DOUBLE"}, at="room1", timestamp="ts", lateness="500ms",
        ...                source=source("file", path="a.csv"))  # doctest: +SKIP
        """
        text = self._declared("STREAM", name, columns)
        if timestamp is not None:
            place = "stream(timestamp)"
            text.add(" TIMESTAMP ").add(written(timestamp, place), place)
            if unit is not None:
                text.add(" UNIT ").add(unit, "stream(unit)")
        if lateness is not None:
            text.add(" LATENESS ").add(duration(lateness), "stream(lateness)")
        if ahead is not None:
            text.add(" AHEAD ").add(duration(ahead), "stream(ahead)")
        if shed is not None:
            text.add(" SHED ABOVE ").add(shed, "stream(shed)")
        return Stream(self._client, name, self._made(text, name, source, at, "stream"))

    def table(
        self, name: str, columns: Mapping[str, str], *, source: SourceCall, at: str | None = None
    ) -> Table:
        """CREATE TABLE: rows that joins look things up in."""
        text = self._declared("TABLE", name, columns)
        return Table(self._client, name, self._made(text, name, source, at, "table"))

    def _declared(self, kind: str, name: str, columns: Mapping[str, str]) -> Text:
        method = kind.lower()
        place = f"{method}(name)"
        text = Text(f"CREATE {kind} ").add(written(name, place), place).add(" (")
        for index, (column, type_) in enumerate(columns.items()):
            place = f"{method}(columns): {column}"
            text.add(", " if index else "").add(f"{written(column, place)} {type_}", place)
        return text.add(")", f"{method}(columns)")

    def _made(
        self, text: Text, name: str, source: SourceCall | None, at: str | None, method: str
    ) -> str:
        """Creates it and returns the site at which it is."""
        if source is not None:
            text.add(" FROM ").join(call_text(source, f"{method}(source)"))
        if at is not None:
            text.add(" AT ").add(written(at, f"{method}(at)"), f"{method}(at)")
        self._client.execute(text)
        return self._client.find(name).site

    def aggregate(self, name: str, class_: type, arguments: Sequence[str], returns: str) -> None:
        """CREATE AGGREGATE of a class with lift, merge and lower, which must be in a module file:
        sites load it from there.

        >>> cluster.aggregate("geomean", GeoMean, ["DOUBLE"], "DOUBLE")  # doctest: +SKIP
        """
        base, path = place_of(class_)
        text = Text("CREATE AGGREGATE ").add(written(name, "aggregate(name)"), "aggregate(name)")
        text.add(" (").add(", ".join(arguments), "aggregate(arguments)").add(") RETURNS ")
        text.add(returns, "aggregate(returns)").add(" FROM ")
        call = SourceCall("python", {"class": path})
        self._client.execute(text.join(call_text(call, "aggregate(class_)")), base=base)

    def __getitem__(self, name: str) -> Stream | Table | Query:
        """The stream, table or query of this name, to make queries of; a query's results are not
        followed.
        """
        entry = self._client.find(name)
        kinds: dict[str, type[Stream | Table | Query]]
        kinds = {"stream": Stream, "table": Table, "query": Query}
        return kinds[entry.kind](self._client, entry.name, entry.site)

    def query(self, name: str) -> Query:
        """A query that runs already, with its results from now on."""
        entry = self._client.find(name)
        if entry.kind != "query":
            raise ConfigError(f"{entry.name} is a {entry.kind}", place="query(name)")
        return Query.joined(self._client, entry.name, entry.site)

    def submit(
        self, pocket: type[Pocket], *, name: str | None = None, follow: bool = True
    ) -> RunningPocket:
        """Starts a pocket. Its class is sent whole, wherever it is defined."""
        path = f"{pocket.__module__}.{pocket.__qualname__}"
        submitted = submission(pocket, pickled(pocket), path, pickled=True, name=name)
        consumer = reader_name() if follow else ""
        return RunningPocket.submitted(self._client, submitted, consumer)

    @contextmanager
    def script(self) -> Iterator[None]:
        """Queries started and pockets submitted within are deployed together, at the end: no tuple
        flows before all of it is there, and if one is wrong, none is started. Streams and tables
        are created at once; nothing flows in them before somebody reads them.

        >>> with cluster.script():  # doctest: +SKIP
        ...     hot = sensor.where("celsius > 50").start("hot")
        ...     alarms = cluster.submit(FireAlarm)
        """
        if self._client.gathered is not None:
            raise ConfigError("a script is being gathered already", place="script()")
        self._client.gathered = gathered = Gathered()
        try:
            yield
        finally:
            self._client.gathered = None
        self._client.carry_out(gathered)

    def sql(self, text: str) -> list[Answer]:
        """Runs a script; returns the answer to each statement. All of it takes effect or none
        does.
        """
        return Answers(self._client.script(text))

    def __repr__(self) -> str:
        try:
            status = self._client.status()
        except AnabranchError as error:
            return f"<cluster that does not answer: {error.message}>"
        sites = ", ".join(f"{one.site} ({one.state})" for one in status.sites)
        return f"<cluster of {sites}; queries: {', '.join(status.states) or 'none'}>"

    def _repr_html_(self) -> str:
        """Its sites and queries as they are now, for a notebook."""
        try:
            status = self._client.status()
        except AnabranchError:
            return f"<pre>{escape(repr(self))}</pre>"
        tasks = primaries(status.sites)
        queries = []
        for name, state in status.states.items():
            task, _ = task_and_sink(name, status.workers, tasks)
            at, out = (task.site, task.position) if task else ("", "")
            queries.append((name, at, state.state, out, state.reason))
        sites = [(one.site, one.state, one.problem) for one in status.sites]
        return table(("site", "state", "problem"), sites) + table(
            ("query", "site", "state", "tuples out", "why"), queries
        )

    def status(self) -> dict[str, Any]:
        """All that `anabranch status --json` shows."""
        said: dict[str, Any] = plain(self._client.status())
        return said

    def wait(self, timeout: Timeout = None) -> dict[str, Any]:
        """Waits until every source that ends is used up and its results are out; returns the status
        then. Raises the error of what has failed, and SiteError when the time is over.
        """
        deadline = time.monotonic() + seconds(timeout)
        while True:
            status = self._client.status()
            for error in failures(status):
                raise error
            if idle(status):
                said: dict[str, Any] = plain(status)
                return said
            if time.monotonic() > deadline:
                raise SiteError("there is still something to do", place="wait(timeout)")
            time.sleep(0.05)

    def close(self) -> None:
        """Stops following, and stops what `local` has started. Calling it again does no harm."""
        close, self._close = self._close, lambda: None
        self._client.close()
        close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
