"""`anabranch demo`: what the system does, shown on real sites, a scene for each thing."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from anabranch.cli.show.tables import command_line, err, out, working
from anabranch.cli.sites.demo_fire import play_fire
from anabranch.demo.apartment import (
    DESK,
    ROOMS,
    alarm_file,
    cluster,
    script_text,
    temperature_file,
)
from anabranch.errors import AnabranchError, ConfigError, TaskError

if TYPE_CHECKING:
    from anabranch.cli.queries.run import Run
    from anabranch.demo.scenes.host import Host, Scene, Told
    from anabranch.face.system import System

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
    from anabranch.demo.scenes.deadlines import Deadlines
    from anabranch.demo.scenes.estimate import Estimate
    from anabranch.demo.scenes.host import Host
    from anabranch.demo.scenes.network import Network
    from anabranch.demo.scenes.stage import Stage

    wrong = []
    scenes = (Network(), Deadlines(), Stage(), Estimate())
    for number, scene in enumerate(scenes, start=2):
        _headline(number, scene.title)
        with working(f"{scene.title} …") as say:
            host = Host(run.coordinator, output, system.execute, system.kill, say)
            told = _played(scene, host)
        mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "dim")}[told.well]
        out.print(f"[{style}]{mark}[/] {escape(told.sentence)}")
        if told.well is False:
            wrong.append(scene.title)
    return wrong


def _played(scene: Scene, host: Host) -> Told:
    """Plays a scene. If it fails, the audience is told so, and the next scene gets an empty
    system.
    """
    from anabranch.demo.scenes.host import Told

    try:
        host.drop_all()
        return scene.play(host)
    except AnabranchError as error:
        return Told(error.line(), well=False)


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
    found = [*(_MORE if quick else ()), *_NEXT]
    width = max(len(command_line(command)) for command, _ in found)
    for command, what in found:
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
