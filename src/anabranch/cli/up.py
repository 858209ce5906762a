"""`anabranch up`, `down`, `status`: a system that goes on until it is told to stop."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from rich.live import Live

from anabranch.cli.run import ONLY_SITE
from anabranch.cli.show import err, out, system_tables
from anabranch.config.cluster import Cluster, load_cluster
from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.launch import RunningCluster, report_interval_s
from anabranch.coordinator.state import credentials_for, find_coordinator, write_endpoint
from anabranch.errors import AnabranchError, ConfigError, SetupError, SiteError

STOP_S = 30.0


def up(cluster_file: Path | None, state: Path, sites: list[str]) -> None:
    """Started again on the same state folder, it finds its catalog and its sites again."""
    cluster = load_cluster(cluster_file) if cluster_file else Cluster.of_sites(sites or [ONLY_SITE])
    fresh = _make_folder(state)
    _refuse_second(state)
    try:
        credentials = credentials_for(cluster, state)
        coordinator = Coordinator(state, cluster, credentials)
    except AnabranchError:
        if fresh:
            shutil.rmtree(state, ignore_errors=True)
        raise
    write_endpoint(state, coordinator.address, credentials, cluster.security.token_file)
    running: RunningCluster | None = None
    try:
        with err.status("Starting …") as spinner:
            if coordinator.sites.names():
                spinner.update("Looking for sites that are still up …")
                time.sleep(2 * report_interval_s(cluster))
            running = RunningCluster(coordinator, state, spinner.update, tied=False)
        if how := coordinator.redeploy_if_all_is_lost():
            err.print(how)
        err.print(f"coordinator at {coordinator.address}, state in {state.resolve()}")
        err.print(f"sites: {', '.join(coordinator.sites.alive())}. Ctrl-C stops everything.")
        coordinator.stop_asked.wait()
    finally:
        if running:
            running.close()
        (state / "coordinator.json").unlink(missing_ok=True)


def _make_folder(state: Path) -> bool:
    """Whether it was not there before."""
    fresh = not state.exists()
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = "this is a file" if state.is_file() else error.strerror or str(error)
        remedy = "Choose another folder with --state."
        raise ConfigError(reason, place=str(state), remedy=remedy) from None
    return fresh


def _refuse_second(state: Path) -> None:
    if not (state / "coordinator.json").exists():
        return
    try:
        pid = find_coordinator(state).call("ping", timeout_s=1.0)["pid"]
    except SiteError:
        return
    raise SetupError(
        f"a coordinator (process {pid}) is up already with its state in {state.resolve()}",
        remedy="Use it, stop it with `anabranch down`, or choose another folder with --state.",
    )


def down(state: Path) -> None:
    coordinator = find_coordinator(state)
    coordinator.call("stop")
    deadline = time.monotonic() + STOP_S
    while (state / "coordinator.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    err.print("stopped")


def show_status(state: Path, *, as_json: bool, watch: bool) -> None:
    coordinator = find_coordinator(state)
    status = coordinator.call("status")
    if as_json:
        print(json.dumps(status, indent=2))
        return
    if not watch:
        out.print(system_tables(status))
        return
    with Live(console=out, auto_refresh=False) as live:
        while True:
            status = coordinator.call("status")
            live.update(system_tables(status), refresh=True)
            time.sleep(1.0)
