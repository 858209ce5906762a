"""`anabranch run`: a script on sites of its own, from start to end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.markup import escape

from anabranch.cli.show.losses import Losses
from anabranch.cli.show.tables import (
    err,
    out,
    queries_table,
    show_answer,
    stdout_to_stderr,
    working,
)
from anabranch.config.cluster import Cluster, load_cluster
from anabranch.coordinator.control.coordinator import Coordinator
from anabranch.coordinator.control.idle import failures, idle
from anabranch.coordinator.control.launch import RunningCluster
from anabranch.coordinator.control.state import credentials_for
from anabranch.coordinator.scripts.sites import check_site_names, sites_named
from anabranch.errors import ConfigError
from anabranch.language.grammar.parser import parse
from anabranch.language.source import Script
from anabranch.scratch import scratch_folder

POLL_S = 0.1
ONLY_SITE = "local"


def read_script(path: Path) -> Script:
    return Script(read_text(path, "script"), str(path))


def read_text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no such {what}", place=str(path)) from None
    except UnicodeDecodeError as error:
        why = f"byte {error.start + 1} is no UTF-8"
        raise ConfigError(f"this is no text: {why}", place=str(path)) from None
    except OSError as error:
        why = "it is a folder" if path.is_dir() else error.strerror or str(error)
        raise ConfigError(f"the {what} cannot be read: {why}", place=str(path)) from None


def cluster_for(script: Script, path: Path | None) -> Cluster:
    """The cluster of the file, or one of the sites that the script names, all in this process."""
    if path:
        return load_cluster(path)
    check_site_names(script)
    return Cluster.of_sites(sites_named(script) or [ONLY_SITE])


class Run:
    """A coordinator and sites that live as long as the run, and leave nothing behind."""

    def __init__(
        self,
        cluster: Cluster,
        progress: Callable[[str], None],
        say: Callable[[str], None] = lambda line: err.print(escape(line)),
    ) -> None:
        """`say` is told of sites that are lost without harm."""
        self._say = say
        self._state = scratch_folder("run-")
        self._running: RunningCluster | None = None
        try:
            coordinator = Coordinator(self._state, cluster, credentials_for(cluster, self._state))
            self._running = RunningCluster(
                coordinator, self._state, progress, tied=True, revive=True
            )
        except BaseException:
            self.close()
            raise
        self.coordinator = coordinator

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._running:
            self._running.close()
        shutil.rmtree(self._state, ignore_errors=True)

    def watch(
        self, seconds: float | None, until_idle: bool, look: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """Until the time is over, all is idle or something failed; returns the last status.

        Raises what failed, or SiteError if a site is lost with something that no standby has.
        """
        end = time.monotonic() + seconds if seconds is not None else None
        losses = Losses(self._say)
        while True:
            status = self.coordinator.status()
            look(status)
            for error in failures(status):
                raise error
            losses.look(status)
            if until_idle and idle(status):
                return status
            if end is not None and time.monotonic() >= end:
                return status
            time.sleep(POLL_S)


def run_script(
    path: Path, cluster: Path | None, seconds: float | None, until_idle: bool, as_json: bool
) -> None:
    script = read_script(path)
    if as_json:
        with stdout_to_stderr():  # what console sinks print is no JSON
            status = _run(script, path, cluster, seconds, until_idle, quiet=True)
        print(json.dumps(status, indent=2))
        return
    status = _run(script, path, cluster, seconds, until_idle, quiet=False)
    if not out.is_terminal:
        out.print(queries_table(status))


def _run(
    script: Script,
    path: Path,
    cluster: Path | None,
    seconds: float | None,
    until_idle: bool,
    *,
    quiet: bool,
) -> dict[str, Any]:
    if not parse(script):  # before Spark, which takes its time
        raise ConfigError("there is no statement in this script", place=str(path))
    with working("Starting …") as say:
        run = Run(cluster_for(script, cluster), say)
    with run:
        for answer in run.coordinator.execute(script, str(path.resolve().parent)):
            if not quiet:
                show_answer(answer.to_dict())
        return _watch(run, seconds, until_idle, live=not quiet and out.is_terminal)


def _watch(run: Run, seconds: float | None, until_idle: bool, *, live: bool) -> dict[str, Any]:
    if not live:
        return run.watch(seconds, until_idle, lambda status: None)
    with Live(console=out, auto_refresh=False) as table:
        return run.watch(
            seconds, until_idle, lambda status: table.update(queries_table(status), refresh=True)
        )
