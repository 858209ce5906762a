"""What the command line says and does about sites that fail, without any that do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from rich.console import Console

from anabranch.cli.queries import move
from anabranch.cli.queries.run import PATIENCE_S, Losses
from anabranch.cli.show.tables import queries_table
from anabranch.cli.sites import running
from anabranch.coordinator.base.reports import AnySite, SiteStatus, SystemStatus
from anabranch.coordinator.requests import MoveQuery
from anabranch.coordinator.service.processes import process_of
from anabranch.coordinator.status.description import protection_of
from anabranch.errors import ErrorReport, SiteError
from anabranch.link.message import Message
from anabranch.link.reports import DiskReport, SnapshotReport, SpilledReport, TaskReport
from anabranch.plan.service_levels import UNLIMITED
from simulation.reports import a_source, tuned
from tests.cli.conftest import Ended
from tests.cli.statuses import assigned, down, site, standby, states, status, task
from tests.e2e.commands import wait_until

Run = Callable[..., Ended]
CENTRE = site("centre", task("q", "centre"))
SPARE = site("centre2", standby("q", "centre2"))


class Asked:
    """A coordinator that answers each action with what it was given."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.messages: list[Message[Any]] = []

    def send(self, message: Message[Any], timeout_s: float = 10.0) -> Any:
        self.messages.append(message)
        return self.answers[message.action]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that looks like the site `centre`: `python -c … anabranch site centre`."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", "anabranch", "site", "centre"]
    with subprocess.Popen(command) as started:
        yield started
        started.kill()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Every state folder leads to a coordinator with these answers."""

    def answering(**answers: Any) -> Asked:
        asked = Asked(**answers)
        for module in (running, move):
            monkeypatch.setattr(module, "find_coordinator", lambda state: asked)
        return asked

    return answering


# -- kill, pause, resume -------------------------------------------------------------------------


def test_kill_kills_that_process(
    anabranch: Run, system: Callable[..., Asked], process: subprocess.Popen[bytes]
) -> None:
    system(status=status(site("centre", pid=process.pid)))
    ended = anabranch("kill", "centre")
    assert ended == Ended(
        0,
        "",
        f"site centre (process {process.pid}) killed; `anabranch status` shows who took"
        " over, and `up` starts it again\n",
    )
    assert process.wait(5) == -signal.SIGKILL


def test_pause_and_resume(
    anabranch: Run, system: Callable[..., Asked], process: subprocess.Popen[bytes]
) -> None:
    """One that is paused does not answer; where it was last is enough."""
    system(status=status(down("centre", pid=process.pid)))
    state = psutil.Process(process.pid)
    assert "`anabranch resume centre` lets it go on" in anabranch("pause", "centre").err
    wait_until(lambda: state.status() == psutil.STATUS_STOPPED, "stopped", timeout_s=10)
    assert "goes on" in anabranch("resume", "centre").err
    wait_until(lambda: state.status() != psutil.STATUS_STOPPED, "going on", timeout_s=10)


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (site("center"), "unknown site 'centre'. Did you mean 'center'?"),
        (
            site("centre", address="10.0.0.5:7101"),
            "site centre is on another machine, at 10.0.0.5:7101. Signal its process there.",
        ),
        (
            site("centre", pid=2),
            'site centre shares the coordinator\'s process. Give it isolation = "process" in'
            " cluster.toml, under [site.centre].",
        ),
        (site("centre", pid=0), "the process of site centre (0) is gone already"),
        (site("centre", pid=os.getpid()), "is gone already"),  # its number has been given anew
    ],
    ids=["unknown", "remote", "shared", "gone", "another"],
)
@pytest.mark.parametrize("command", ["kill", "pause", "resume"])
def test_whom_not_to_signal(
    anabranch: Run,
    system: Callable[..., Asked],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    one: SiteStatus,
    line: str,
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("a signal was sent")

    monkeypatch.setattr(psutil.Process, "send_signal", never)
    system(status=status(one))
    ended = anabranch(command, "centre")
    assert ended.code == 1
    assert line in ended.err
    assert ended.err.count("\n") == 1


def test_a_process_that_ended_is_gone(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    state = psutil.Process(process.pid)
    wait_until(lambda: state.status() == psutil.STATUS_ZOMBIE, "ended", timeout_s=10)
    with pytest.raises(SiteError, match="gone already"):
        process_of("centre", status(site("centre", pid=process.pid)))


def test_move_says_from_where_to_where(anabranch: Run, system: Callable[..., Asked]) -> None:
    asked = system(move="centre")
    ended = anabranch("move", "q", "centre2")
    assert ended.code == 0
    assert "query q moved from centre to centre2 in 0.0 s\n" in ended.err
    assert asked.messages == [MoveQuery("q", "centre2")]


# -- what status shows ---------------------------------------------------------------------------


def shown(system: SystemStatus) -> list[str]:
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(queries_table(system))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_source_that_waits_says_what_for() -> None:
    away = a_source("s", problem="no broker answers")
    assert "stream s: no broker answers; trying again" in shown(
        status(site("centre", task("q", "centre"), away), SPARE)
    )


def test_what_is_on_a_disk_is_told_and_for_whom() -> None:
    spilled = {
        "s": SpilledReport(1_200_000_000, {"q": 4_000_000}),
        "t": SpilledReport(7_000_000, {}),
        "u": SpilledReport(900_000, {"r": 5_000}, {"r": 90.0}, "7d 20GB"),
    }
    disk = DiskReport(10_000_000_000, 10_000_000_000)
    lines = shown(status(site("edge", spilled=spilled, disk=disk), SPARE))
    assert [line for line in lines if "disk" in line or "for streams" in line] == [
        "stream s: 1.2GB on the disk of edge: q is 4,000,000 tuples behind",
        "stream t: 7MB on the disk of edge: open windows need it",
        "stream u: 900kB on the disk of edge: r is 5,000 tuples behind, which takes it 1.5m more;"
        " KEEP 7d 20GB",
        "site edge: its 10GB for streams are used up; sources wait for the slowest of their"
        " readers",
    ]


def test_what_windows_hold_and_when_it_was_kept_is_told() -> None:
    state = SnapshotReport(
        count=3,
        nbytes=2_500_000,
        memory_bytes=12_000_000,
        age_s=4.1,
        took_s=0.1,
        why="bytes",
        inputs=(1000,),
        limit_bytes=20_000_000,
        limit_replay_s=2.0,
        problem="the state of q is not kept: No space left on device",
    )
    lines = shown(status(site("centre", task("q", "centre", snapshot=state)), SPARE))
    text = " ".join(lines)
    assert "site centre: the state of q is not kept: No space left on device" in text
    assert (
        "query q: windows hold 12MB at centre; their state was kept 4.1 s ago (2.5MB), since"
        " upstream held much for them" in text
    )


def test_a_standby_is_no_second_row() -> None:
    sink = site("desk", task("q/sink", "desk"))
    lines = shown(status(CENTRE, SPARE, sink))
    assert [line.split()[:3] for line in lines[1:2]] == [["q", "centre", "running"]]
    assert lines[2:] == ["query q: protected by centre2, batch 100"]


def test_nothing_is_said_of_protection_that_nobody_asked_for() -> None:
    assert len(shown(status(CENTRE, standbys={}, protection={}))) == 2
    assert len(shown(status(CENTRE, standbys={}, protection=assigned("centre", None)))) == 2


def test_the_newest_primary_counts() -> None:
    """One that has been replaced may not know it yet."""
    newest = site("centre2", task("q", "centre2", epoch=1))
    for sites in ((CENTRE, newest), (newest, CENTRE)):
        (row,) = [line for line in shown(status(*sites)) if line.startswith("q ")]
        assert row.split()[1] == "centre2"


def test_tuples_out_go_on_counting_after_a_take_over() -> None:
    """Of its 10 tuples, the new primary has put out 4 itself."""
    assert shown(status(CENTRE, SPARE))[1].split()[5] == "10"


def test_why_a_query_gets_nowhere() -> None:
    away = states(q="sink away: its sink is at desk, which is unreachable")
    lines = shown(status(CENTRE, SPARE, states=away))
    assert lines[1].split(maxsplit=4)[2:4] == ["sink", "away"]
    assert "query q: sink away: its sink is at desk, which is unreachable" in lines


def test_a_query_on_its_way_is_not_lost() -> None:
    over = states(q="taking over: centre2 after centre")
    lines = shown(status(down("centre", "q"), SPARE, states=over))
    assert lines[1].split(maxsplit=1) == ["q", "taking over"]
    assert lines[2] == "query q: taking over: centre2 after centre"
    lost = states(q="lost: site centre is away")
    both = shown(status(down("centre", "q"), down("centre2"), states=lost))
    assert both[1].split() == ["q", "lost"]
    assert both[2] == "query q: unprotected: its standby centre2 is away"


@pytest.mark.parametrize(
    ("one", "protection", "text"),
    [
        (standby("q", "centre2", batch=UNLIMITED), None, "protected by centre2, batch unlimited"),
        (standby("q", "centre2", batch=2500), None, "protected by centre2, batch 2,500"),
        (
            standby("q", "centre2", tuning=(tuned(why="b = 7 is best"),)),
            None,
            "protected by centre2, b = 7 is best",
        ),
        (standby("q", "centre2", protects=False), None, "unprotected: centre2 is catching up"),
        (
            standby("q", "centre2", error=ErrorReport("TaskError", "no disk")),
            None,
            "unprotected: its standby failed: no disk",
        ),
        (standby("q", "centre2", guard="claiming"), None, "taking over: centre2 after centre"),
        (
            task("p", "centre2"),
            assigned("centre", None, "no site is up"),
            "unprotected: no site is up",
        ),
        (task("p", "centre2"), {}, "unprotected: no standby yet"),
    ],
)
def test_what_is_said_of_a_query(one: TaskReport, protection: Any, text: str) -> None:
    more = {} if protection is None else {"protection": protection}
    system = status(CENTRE, site("centre2", one), **more)
    assert protection_of("q", system) == (text, text.startswith("protected"))


# -- sites lost during a run ---------------------------------------------------------------------


class Watched:
    """Losses on a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self._losses = Losses(self.said.append, lambda: self.now)

    def look(self, *sites: AnySite, after_s: float = 0.1, **more: Any) -> None:
        self.now += after_s
        self._losses.look(status(*sites, **more))


def test_a_site_whose_work_is_taken_over_is_no_error() -> None:
    run = Watched()
    run.look(CENTRE, SPARE)
    run.look(down("centre", "q"), SPARE)
    assert run.said == []
    taken = site("centre2", task("q", "centre2", epoch=1))
    run.look(down("centre"), taken, protection=assigned("centre2", None))
    run.look(down("centre"), taken, protection=assigned("centre2", None), after_s=60)
    assert run.said == ["site centre is lost; centre2 took over q"]


def test_one_that_is_back_before_anyone_looked() -> None:
    run = Watched()
    run.look(down("centre", "q"), SPARE)
    run.look(
        site("centre"), site("centre2", task("q", "centre2")), protection=assigned("centre2", None)
    )
    assert run.said == ["site centre is lost; centre2 took over q"]


def test_what_nobody_has_ends_the_run_after_a_moment() -> None:
    run = Watched()
    lost = down("room1", "s", "q", lost=("s",))
    run.look(lost, SPARE)
    run.look(lost, SPARE, after_s=PATIENCE_S / 2)
    with pytest.raises(SiteError, match="a site is lost: room1 is unreachable"):
        run.look(lost, SPARE, after_s=PATIENCE_S)


def test_one_that_answers_again_is_forgiven() -> None:
    run = Watched()
    run.look(down("room1", "s", lost=("s",)))
    run.look(site("room1"), after_s=PATIENCE_S)
    run.look(down("room1", "s", lost=("s",)))
    assert run.said == []


def test_one_that_is_stuck_ends_the_run() -> None:
    stuck = site("room1", state="stuck", problem="cannot go on: no such file")
    with pytest.raises(SiteError, match="cannot go on"):
        Watched().look(stuck)


def test_a_query_moved_by_hand_is_no_loss() -> None:
    run = Watched()
    run.look(CENTRE, SPARE)
    run.look(CENTRE, SPARE, protection=assigned("centre2", "centre"))
    assert run.said == []
