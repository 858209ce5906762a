"""`anabranch up`: a system that goes on until it is told to stop."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from anabranch.cli.queries.scripts import ONLY_SITE
from anabranch.cli.show.tables import err, working
from anabranch.cli.sites.anew import confirm_anew
from anabranch.cli.sites.catching_up import CatchingUp
from anabranch.config.address import HostPort
from anabranch.config.cluster import Cluster, load_cluster
from anabranch.config.rules import unguarded
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.launch import RunningCluster, may_be_up
from anabranch.coordinator.service.state import (
    credentials_for,
    exposed,
    write_endpoint,
)
from anabranch.coordinator.status.query_states import WELL
from anabranch.disk.own import own_folder
from anabranch.errors import AnabranchError, ConfigError
from anabranch.runtime.log import log_no_more, log_to

if TYPE_CHECKING:
    from anabranch.face.server import FaceServer


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


def _named(sites: list[str]) -> Cluster:
    """A cluster of these sites, or of one site, all in this process."""
    twice = next((name for name in sites if sites.count(name) > 1), None)
    if twice is not None:
        remedy = "Give each site a name of its own."
        raise ConfigError(f"the site {twice} is given twice", place="--site", remedy=remedy)
    return Cluster.of_sites(sites or [ONLY_SITE])


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
