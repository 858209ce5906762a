"""`anabranch demo`: what the system does, shown on real sites, a scene for each thing. The first
is a fire, live, and the death of the security centre.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.live import Live
from rich.markup import escape

from anabranch.cli.show.tables import command_line, err, out, working
from anabranch.coordinator.base.reports import SystemStatus
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
)
from anabranch.demo.record import Failure, Record, Watcher, verdict
from anabranch.demo.screen import ScreenMoment, plain_line, screen, summary
from anabranch.errors import AnabranchError, ConfigError, TaskError

if TYPE_CHECKING:
    from anabranch.cli.queries.run import Run
    from anabranch.demo.scenes.host import Scene, SceneHost, SceneOutcome
    from anabranch.face.system import System


PLAIN_S = 2.0
"""Between two lines where there is no terminal."""
REDRAW_S = 0.2
GRACE_S = 30.0
"""What is still on its way so long after the last reading is no longer waited for."""

Look = Callable[[ScreenMoment], None]
Kill = Callable[[str], object]


def play_fire(
    run: Run,
    output: Path,
    seconds: float,
    execute: Callable[[str], object],
    kill: Kill | None,
) -> None:
    """Shows the fire in `seconds`, and kills the centre unless `kill` is None. Raises TaskError if
    the alarms are not those of a run without failures.
    """
    with Watcher(output) as watcher:
        execute(script_lasting(seconds).text)
        failure = Failure()
        last = _watch(run, watcher.record, failure, seconds, kill)
    out.print()
    out.print(summary(watcher.record, last, failure))
    if not (outcome := verdict(watcher.record)).right:
        raise TaskError(f"the alarms are not those of a run without failures: {outcome}")


class _Clock:
    """Turns the coordinator's status into moments; time begins with the first reading."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun: float | None = None

    def moment(self, status: SystemStatus) -> ScreenMoment:
        sources = list(status.sources())
        readings = {source.site: source.rows for source in sources}
        if self._begun is None and any(readings.values()):
            self._begun = time.monotonic()
        elapsed = time.monotonic() - self._begun if self._begun is not None else 0.0
        rates = {source.site: source.rate for source in sources}
        return ScreenMoment(elapsed, self._seconds, readings, rates)


def _watch(
    run: Run, record: Record, failure: Failure, seconds: float, kill: Kill | None
) -> ScreenMoment:
    """Watches until every reading has reached its end; returns the last moment."""
    clock = _Clock(seconds)
    with _view(record, failure) as (interval_s, draw):
        draw_if_due = _every(interval_s, draw)

        def look(status: SystemStatus) -> None:
            moment = clock.moment(status)
            failure.look(status, time.time())
            if kill and _is_time(moment, record, failure):
                failure.killed = time.time()
                kill(CENTRE)
            draw_if_due(moment)

        last = clock.moment(run.watch(seconds + GRACE_S, True, look))
        draw(last)
    return last


def _is_time(moment: ScreenMoment, record: Record, failure: Failure) -> bool:
    """Whether it burns and the centre has a standby that can replace it."""
    late = moment.elapsed_s >= KILL_AFTER * moment.seconds
    return failure.killed is None and failure.standby is not None and bool(record.alarms) and late


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

    def look_if_due(moment: ScreenMoment) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + interval_s
            look(moment)

    return look_if_due


SHORTEST_S, LONGEST_S = 1.0, 3600.0
FIRE = "A fire in an apartment: its security centre is killed, and no alarm is lost"


def show_script() -> None:
    print(script_text(), end="")


def run_demo(
    seconds: float,
    folder: Path | None,
    *,
    kill: bool = True,
    quick: bool = False,
    stay: bool = False,
) -> None:
    """Shows all scenes. The fire takes `seconds`; `quick` leaves out the scenes after it. Unless a
    `folder` is given, nothing stays on disk. Raises TaskError if anything came out that should not
    have.
    """
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ConfigError(
            f"the fire cannot last {seconds:g} s",
            remedy=f"Give --for a duration from {SHORTEST_S:g}s to {LONGEST_S / 3600:g}h.",
        )
    with _output(folder) as output, _started() as run, _shown(run, output) as system:
        _headline(1, FIRE)
        play_fire(run, output, seconds, system.execute, system.kill if kill else None)
        wrong = [] if quick else _scenes(run, system, output)
        _say_where(output, kept=folder is not None)
        _say_next(quick=quick)
        if stay:
            err.print("The dashboard stays until Ctrl-C.")
            run.coordinator.stop_asked.wait()
    if wrong:
        raise TaskError(f"not as it should be: {'; '.join(wrong)}")


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
    """A run on all sites. It prints a line before the imports, which take a second."""
    begun = time.monotonic()
    with working("Starting Spark …") as say:
        if not err.is_terminal:
            err.print("Starting Spark …")
        from anabranch.cli.queries.run import Run

        run = Run(cluster(), say, say=lambda line: None)
    with run:
        err.print(f"Eight sites in three processes are up after {time.monotonic() - begun:.0f} s.")
        yield run


@contextmanager
def _shown(run: Run, output: Path) -> Iterator[System]:
    from anabranch.face.server import FaceServer
    from anabranch.face.system import System

    system = System(run.coordinator, output)
    server = FaceServer(system, run.coordinator.credentials, None)
    try:
        out.print(f"Watch it on the dashboard too: {server.invitation()}", soft_wrap=True)
        yield system
    finally:
        server.close()


def _scenes(run: Run, system: System, output: Path) -> list[str]:
    """The titles of the scenes in which something was wrong."""
    from anabranch.demo.scenes.deadlines import DeadlinesScene
    from anabranch.demo.scenes.estimate import EstimateScene
    from anabranch.demo.scenes.host import SceneHost
    from anabranch.demo.scenes.network import NetworkScene
    from anabranch.demo.scenes.stage import StageScene

    wrong = []
    scenes = (NetworkScene(), DeadlinesScene(), StageScene(), EstimateScene())
    for number, scene in enumerate(scenes, start=2):
        _headline(number, scene.title)
        with working(f"{scene.title} …") as say:
            host = SceneHost(run.coordinator, output, system.execute, system.kill, say)
            outcome = _played(scene, host)
        mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "dim")}[outcome.well]
        out.print(f"[{style}]{mark}[/] {escape(outcome.sentence)}")
        if outcome.well is False:
            wrong.append(scene.title)
    return wrong


def _played(scene: Scene, host: SceneHost) -> SceneOutcome:
    """Plays a scene. If it fails, the audience is told so, and the next scene gets an empty
    system.
    """
    from anabranch.demo.scenes.host import SceneOutcome

    try:
        host.drop_all()
        return scene.play(host)
    except AnabranchError as error:
        return SceneOutcome(error.line(), well=False)


def _headline(number: int, title: str) -> None:
    out.print(f"\n[bold]{number}  {escape(title)}[/]")


def _say_where(output: Path, *, kept: bool) -> None:
    if kept:
        out.print(escape(f"\nWritten in {output}:"))
    else:
        out.print("\nWritten, and removed again (--out FOLDER keeps it):")
    for room in ROOMS:
        ours, theirs = temperature_file(room), alarm_file(room)
        out.print(f"  {ours} by {room}, {theirs} by {DESK}")


def _say_next(*, quick: bool) -> None:
    out.print("\nWhat to try next:")
    hints = [*(_MORE if quick else ()), *_NEXT]
    width = max(len(command_line(command)) for command, _ in hints)
    for command, what in hints:
        out.print(f"  {escape(command_line(command)):<{width}}  [dim]{what}[/]")


_MORE = (("anabranch demo", "all scenes: placement, deadlines, a stage, estimates; 3 minutes"),)
_NEXT = (
    ("anabranch demo --stay", "the same, with a dashboard that stays"),
    ("anabranch demo --show > apartment.sql", "the script behind the fire"),
    ("anabranch run apartment.sql --until-idle", "run it, or what you make of it"),
    ("anabranch prepare", "have Spark start sooner from now on"),
    ("anabranch up", "start a system that stays"),
    ("anabranch sql", "type statements at it"),
    ("docs/tutorial.md", "all of it step by step"),
)
