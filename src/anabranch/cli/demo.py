"""`anabranch demo`: a fire in an apartment, live, and the death of its security centre."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.markup import escape

from anabranch.cli.show import command_line, err, out
from anabranch.demo.apartment import (
    CENTRE,
    DESK,
    KILL_AFTER,
    ROOMS,
    alarm_file,
    cluster,
    script_lasting,
    script_text,
    temperature_file,
)  # fmt: skip
from anabranch.demo.failure import Failure
from anabranch.demo.record import Record, Watcher
from anabranch.demo.screen import Moment, plain_line, screen, summary
from anabranch.demo.verdict import verdict
from anabranch.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from anabranch.cli.run import Run

SHORTEST_S, LONGEST_S = 1.0, 3600.0
PLAIN_S = 2.0
"""Between two lines where there is no terminal."""
REDRAW_S = 0.2
GRACE_S = 30.0
"""What is still on its way so long after the last reading is no longer waited for."""

Look = Callable[[Moment], None]


def show_script() -> None:
    print(script_text(), end="")


def run_demo(seconds: float, folder: Path | None, *, kill: bool = True) -> None:
    """Runs for `seconds` after the start; without `folder` nothing is left behind. Raises TaskError
    if the alarms are not those of a run without failures."""
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ConfigError(
            f"the demonstration cannot last {seconds:g} s",
            remedy=f"Give --for a duration from {SHORTEST_S:g}s to {LONGEST_S / 3600:g}h.",
        )
    with _output(folder) as output:
        with _started() as run, Watcher(output) as watcher:
            run.coordinator.execute(script_lasting(seconds), str(output))
            failure = Failure()
            last = _watch(run, watcher.record, failure, seconds, kill=kill)
        out.print()
        out.print(summary(watcher.record, last, failure))
        _say_where(output, kept=folder is not None)
    if not (found := verdict(watcher.record)).right:
        raise TaskError(f"the alarms are not those of a run without failures: {found}")


@contextmanager
def _output(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as temporary:
            yield Path(temporary)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be a folder: {error.strerror}", place=str(folder)) from None
    yield folder.resolve()


@contextmanager
def _started() -> Iterator[Run]:
    """A run on all sites. Says something before the imports, which take a second."""
    begun = time.monotonic()
    with err.status("Starting Spark …") as spinner:
        if not err.is_terminal:
            err.print("Starting Spark …")
        from anabranch.cli.run import Run

        def progress(text: str) -> None:
            spinner.update(escape(text))

        run = Run(cluster(), progress, say=lambda line: None)
    with run:
        err.print(f"Six sites in three processes are up after {time.monotonic() - begun:.0f} s.")
        yield run


class _Clock:
    """Turns the coordinator's status into moments; time begins with the first reading."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun: float | None = None

    def moment(self, status: dict[str, Any]) -> Moment:
        sources = [source for site in status["sites"] for source in site["sources"]]
        readings = {source["site"]: source["rows"] for source in sources}
        if self._begun is None and any(readings.values()):
            self._begun = time.monotonic()
        elapsed = time.monotonic() - self._begun if self._begun is not None else 0.0
        rates = {source["site"]: source["rate"] for source in sources}
        return Moment(elapsed, self._seconds, readings, rates)


def _watch(run: Run, record: Record, failure: Failure, seconds: float, *, kill: bool) -> Moment:
    """Until every reading has gone all its way; returns the last moment."""
    clock = _Clock(seconds)
    with _view(record, failure) as (interval_s, draw):
        draw_if_due = _every(interval_s, draw)

        def look(status: dict[str, Any]) -> None:
            moment = clock.moment(status)
            failure.look(status, time.time())
            if kill and _is_time(moment, record, failure):
                _kill_the_centre(status, failure)
            draw_if_due(moment)

        last = clock.moment(run.watch(seconds + GRACE_S, True, look))
        draw(last)
    return last


def _is_time(moment: Moment, record: Record, failure: Failure) -> bool:
    """It burns, and the centre has a standby to be replaced by."""
    late = moment.elapsed_s >= KILL_AFTER * moment.seconds
    return failure.killed is None and failure.standby is not None and bool(record.alarms) and late


def _kill_the_centre(status: dict[str, Any], failure: Failure) -> None:
    from anabranch.cli.signal_site import process_of

    process = process_of(CENTRE, status)
    failure.killed = time.time()
    process.kill()


@contextmanager
def _view(record: Record, failure: Failure) -> Iterator[tuple[float, Look]]:
    """How often to draw, and how: a live screen on a terminal, else lines."""
    if not out.is_terminal:
        yield PLAIN_S, lambda moment: out.print(plain_line(record, moment, failure))
        return
    with Live(console=out, auto_refresh=False) as live:
        yield REDRAW_S, lambda moment: live.update(screen(record, moment, failure), refresh=True)


def _every(interval_s: float, look: Look) -> Look:
    due = time.monotonic()

    def look_if_due(moment: Moment) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + interval_s
            look(moment)

    return look_if_due


def _say_where(output: Path, *, kept: bool) -> None:
    if kept:
        out.print(escape(f"\nWritten in {output}:"))
    else:
        out.print("\nWritten, and removed again (--out FOLDER keeps it):")
    for room in ROOMS:
        ours, theirs = temperature_file(room), alarm_file(room)
        out.print(f"  {ours} by {room}, {theirs} by {DESK}")
    out.print("\nWhat to try next:")
    width = max(len(command_line(command)) for command, _ in _NEXT)
    for command, what in _NEXT:
        out.print(f"  {escape(command_line(command)):<{width}}  [dim]{what}[/]")


_NEXT = (
    ("anabranch demo --show > apartment.sql", "the script behind this"),
    ("anabranch run apartment.sql --until-idle", "run it, or what you make of it"),
    ("anabranch prepare", "have Spark start sooner from now on"),
    ("anabranch up", "start a system that stays"),
    ("anabranch sql", "type statements at it"),
    ("docs/tutorial.md", "all of it step by step"),
)
