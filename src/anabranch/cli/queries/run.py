"""`anabranch run`: a script on sites of its own, from start to end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.live import Live
from rich.markup import escape

from anabranch.cli.queries.check import check_early
from anabranch.cli.queries.scripts import cluster_for, read_script
from anabranch.cli.show.losses import Losses
from anabranch.cli.show.tables import (
    err,
    out,
    queries_table,
    show_answer,
    stdout_to_stderr,
    working,
)
from anabranch.config.cluster import Cluster
from anabranch.coordinator.service.idle import failures, idle
from anabranch.coordinator.service.temporary import TemporarySystem
from anabranch.coordinator.status.report import SystemStatus
from anabranch.errors import ConfigError
from anabranch.language.grammar.parser import parse
from anabranch.language.source import Script
from anabranch.link.message import plain

POLL_S = 0.1


class Run(TemporarySystem):
    """A system that a command starts: a site that dies is started again."""

    def __init__(
        self,
        cluster: Cluster,
        progress: Callable[[str], None],
        say: Callable[[str], None] = lambda line: err.print(escape(line)),
    ) -> None:
        """`say` is called with a line about each site that is lost without harm."""
        self._say = say
        super().__init__(cluster, progress, revive=True)

    def watch(
        self, seconds: float | None, until_idle: bool, look: Callable[[SystemStatus], None]
    ) -> SystemStatus:
        """Waits until the time is over, all is idle or something failed; returns the last status.

        Raises the failure, or SiteError if a lost site ran something that no standby has.
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
        print(json.dumps(plain(status), indent=2))
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
) -> SystemStatus:
    if not parse(script):  # before Spark, which takes its time
        raise ConfigError("there is no statement in this script", place=str(path))
    on = cluster_for(script, cluster)
    check_early(script, on, str(path.resolve().parent))
    with working("Starting …") as say:
        run = Run(on, say)
    with run:
        for answer in run.coordinator.execute(script, str(path.resolve().parent)):
            if not quiet:
                show_answer(answer)
        return _watch(run, seconds, until_idle, live=not quiet and out.is_terminal)


def _watch(run: Run, seconds: float | None, until_idle: bool, *, live: bool) -> SystemStatus:
    if not live:
        return run.watch(seconds, until_idle, lambda status: None)
    with Live(console=out, auto_refresh=False) as table:
        return run.watch(
            seconds, until_idle, lambda status: table.update(queries_table(status), refresh=True)
        )
