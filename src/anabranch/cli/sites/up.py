"""`anabranch up`: a system that goes on until it is told to stop. It says how far it is after a
restart, and asks before it deletes what it had.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from anabranch.cli.queries.scripts import ONLY_SITE
from anabranch.cli.show.tables import err, working
from anabranch.config.address import HostPort
from anabranch.config.cluster import ClusterConfig, load_cluster
from anabranch.config.rules import unguarded
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.launch import RunningCluster, may_be_up
from anabranch.coordinator.service.state import (
    credentials_for,
    exposed,
    write_endpoint,
)
from anabranch.coordinator.status.query_states import WELL
from anabranch.disk.real import own_folder
from anabranch.errors import AnabranchError, ConfigError
from anabranch.link.reports import SourceReport
from anabranch.plan.catalog import AnyDef, ApproximateDef, PocketDef, QueryDef, StreamDef, TableDef
from anabranch.plan.spec import Call
from anabranch.runtime.log import log_no_more, log_to
from anabranch.runtime.loop import supervised

if TYPE_CHECKING:
    from anabranch.face.server import FaceServer


def confirm_anew(state: Path, *, yes: bool) -> None:
    """Says what is deleted, and asks unless `yes`. Raises typer.Abort if it is not meant, and
    ConfigError if nobody can be asked. Nothing has been deleted yet.
    """
    lines = list(deleted(_definitions(state)))
    if not lines:
        return
    err.print("Deploying anew begins every stream and query from the beginning, and deletes:")
    for line in lines:
        err.print(f"  {escape(line)}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "up --anew deletes what queries have and wrote, and nobody can be asked here",
            remedy="Say --yes if that is meant; without --anew everything goes on where it was.",
        )
    typer.confirm("Go on?", abort=True, err=True)


def _definitions(state: Path) -> list[AnyDef]:
    if not (state / "catalog.db").exists():
        return []
    catalog = Catalog(state / "catalog.db")
    try:
        return list(catalog.definitions().values())
    finally:
        catalog.close()


def deleted(definitions: Iterable[AnyDef]) -> Iterator[str]:
    """A line for each thing that is lost when these are deployed from the beginning."""
    known = list(definitions)
    for definition in known:
        if isinstance(definition, StreamDef | TableDef):
            state = (
                " and the state of its stage"
                if isinstance(definition, StreamDef) and definition.stage
                else ""
            )
            read = f"how far it was read, and what it has kept{state}"
            yield f"{definition.kind} {definition.name}: {read}"
        elif isinstance(definition, PocketDef):
            yield f"pocket {definition.name}: the state of its object"
        elif isinstance(definition, QueryDef) and not definition.part_of:
            yield _query_line(definition.name, definition.sink)
        elif isinstance(definition, ApproximateDef):
            yield _query_line(definition.name, definition.template.sink)


def _query_line(name: str, sink: Call | None) -> str:
    return f"query {name}: its open windows and positions{_written(sink)}"


def _written(sink: Call | None) -> str:
    """Says what happens to the results that were already written."""
    if sink is None:
        return ""
    options = sink.options
    match sink.name:
        case "jsonl" | "csv" | "parquet":
            return f"; what it wrote to {options.get('path')}"
        case "postgres":
            return f"; its rows in table {options.get('table')}"
        case "kafka":
            return f". Topic {options.get('topic')} keeps its records, and gets them all again"
        case _:
            return ""


LOOK_S = 1.0
TELL_S = 5.0
QUIET_S = 3.0
"""What is over sooner is not told: most restarts are."""
GIVE_UP_S = 30.0
"""So long nothing to be read again may be seen, before there is nothing to tell any more."""


class CatchingUp:
    """Reports how a system catches up. `look` gives the system's status. Nothing here delays the
    system.
    """

    def __init__(
        self,
        look: Callable[[], SystemStatus],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._say = say
        self._clock = clock
        self._begun = self._seen = self._told = clock()
        self._since: float | None = None

    def begin(self, stopped: threading.Event) -> None:
        """Reports from a thread of its own, until the system has caught up or is stopped."""

        def watch() -> None:
            while not stopped.wait(LOOK_S) and self.tell():
                pass

        supervised("catching-up", watch, stopped).start()

    def tell(self) -> bool:
        """Says how far the system is, if that is due. Returns whether there may be more to say."""
        now = self._clock()
        streams = list(_behind(self._look()))
        if streams:
            self._seen = now
            self._since = self._since or now
            if now - self._since >= QUIET_S and now - self._told >= TELL_S:
                self._told = now
                self._say(f"catching up: {'; '.join(_line(one) for one in streams)}")
            return True
        if self._since is None:
            return now - self._begun < GIVE_UP_S
        if now - self._since >= QUIET_S:
            self._say(f"caught up after {now - self._begun:.0f} s")
        return False


def _behind(status: SystemStatus) -> list[SourceReport]:
    return [one for one in status.sources() if one.replayed < one.to_replay]


def _line(source: SourceReport) -> str:
    done, whole = source.replayed, source.to_replay
    left = f", about {(whole - done) / source.rate:.0f} s left" if source.rate else ""
    return f"stream {source.stream} {done:,} of {whole:,} recorded tuples{left}"


def up(
    cluster_file: Path | None,
    state: Path,
    sites: list[str],
    http: HostPort | None,
    *,
    face: bool,
    anew: bool = False,
    yes: bool = False,
) -> None:
    """Runs a system. If it is started again on the same state folder, it finds its catalog and its
    sites again, and all goes on where it was; `anew` starts from the beginning. With a `face` it
    shows itself at `http`, or at another free port.
    """
    cluster = load_cluster(cluster_file) if cluster_file else _named(sites)
    if http:
        for breach in unguarded(http, cluster.security, "--http"):
            raise breach
    if anew:
        confirm_anew(state, yes=yes)
    stopping = threading.Event()

    def tell(line: str) -> None:
        if not stopping.is_set():  # then sites go because they are told to
            err.print(escape(line))

    fresh = _make_folder(state)
    try:
        credentials = credentials_for(cluster, state)
        if warning := exposed(cluster.security.token_file):
            err.print(escape(warning))
        coordinator = Coordinator(state, cluster, credentials, tell)
    except AnabranchError:
        if fresh:
            shutil.rmtree(state, ignore_errors=True)
        raise
    write_endpoint(state, coordinator.address, credentials, cluster.security.token_file)
    running: RunningCluster | None = None
    shown: FaceServer | None = None
    log = log_to(state / "log.jsonl")
    try:
        with working("Starting …") as say:
            if may_be_up(coordinator):
                say("Looking for sites that are still up …")
                time.sleep(2 * cluster.report_interval_s)
            running = RunningCluster(coordinator, state, say, tied=False)
            how = _go_on(coordinator, say, anew=anew)
        if how:
            err.print(escape(how))
        if face:
            shown = _show_face(coordinator, http)
            write_endpoint(
                state, coordinator.address, credentials, cluster.security.token_file, shown.url
            )
            err.print(f"dashboard at {shown.invitation()}")
        err.print(f"coordinator at {coordinator.address}, state in {state.resolve()}")
        err.print(f"sites: {', '.join(coordinator.sites.alive())}. Ctrl-C stops everything.")
        if how:
            CatchingUp(lambda: coordinator.status(ask=False), tell).begin(stopping)
        coordinator.stop_asked.wait()
        err.print("stopping: `anabranch down` or the dashboard has asked for it")
    finally:
        stopping.set()
        if shown:
            shown.close()
        if running:
            running.close()
        log_no_more(log)
        (state / "coordinator.json").unlink(missing_ok=True)


def _go_on(coordinator: Coordinator, say: Callable[[str], None], *, anew: bool) -> str:
    """Says what has become of an earlier system; empty if there was none, or if it still runs."""
    if anew or coordinator.deploys_anew:
        say("Deploying everything anew …")
        coordinator.deploy_anew()
        return "everything is deployed anew, from the beginning"
    say("Putting back what ran …")
    if not coordinator.settle():
        return ""
    states = coordinator.status().states
    waiting = [name for name, one in states.items() if one.state not in WELL]
    if not waiting:
        return "everything goes on where it was"
    return f"what can goes on where it was; {', '.join(waiting)} cannot yet (anabranch status)"


def _show_face(coordinator: Coordinator, http: HostPort | None) -> FaceServer:
    from anabranch.face.server import FaceServer
    from anabranch.face.system import System

    return FaceServer(System(coordinator, Path.cwd()), coordinator.credentials, http)


def _named(sites: list[str]) -> ClusterConfig:
    """A cluster of these sites, or of one site, all in this process."""
    twice = next((name for name in sites if sites.count(name) > 1), None)
    if twice is not None:
        remedy = "Give each site a name of its own."
        raise ConfigError(f"the site {twice} is given twice", place="--site", remedy=remedy)
    return ClusterConfig.of_sites(sites or [ONLY_SITE])


def _make_folder(state: Path) -> bool:
    """Makes the folder. Returns whether it did not exist before."""
    fresh = not state.exists()
    try:
        own_folder(state)
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = "Choose another folder with --state."
        raise ConfigError(reason, place=str(state), remedy=remedy) from None
    return fresh
