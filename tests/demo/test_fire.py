"""The demonstration's fire: its parts, and one real run of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console, RenderableType

from anabranch.cli.sites.demo import script_text, show_script
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.scripts.references import sites_named
from anabranch.demo.apartment import (
    ALARM_ABOVE,
    CENTRE,
    DESK,
    HUBS,
    READINGS,
    ROOMS,
    SPARE,
    alarm_file,
    cluster,
    script_lasting,
    temperature_file,
)
from anabranch.demo.record import ALARMS, Failure, GrowingFile, Record, Verdict, verdict
from anabranch.demo.screen import ScreenMoment, bar, curve, plain_line, screen, summary
from anabranch.link.reports import TaskReport
from simulation.reports import a_status, a_task, assigned, guarding, up

MOMENT = ScreenMoment(12.0, 30.0, dict.fromkeys(ROOMS, 120), dict.fromkeys(ROOMS, 10.0))


def record(alarms: int = 0, temperatures: int = 100) -> Record:
    made = Record()
    for room in ROOMS:
        for index in range(temperatures):
            made.add_temperature(room, 20.0 + index, ts_us=1_000_000 * index)
    for index in range(alarms):
        made.add_alarm("room2", 60.0, ts_us=1_000_000 * index, seen=index + 0.1)
    return made


def lines(shown: RenderableType, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(shown)
    return console.export_text().splitlines()


def test_the_script_names_the_sites_of_its_cluster() -> None:
    """The centres die alone, all else lives with the demonstration."""
    named = set(sites_named(script_lasting(30.0)))
    assert named == {*ROOMS, CENTRE, SPARE, DESK}
    assert set(cluster().sites) == named | set(HUBS)
    apart = [site.name for site in cluster().sites.values() if not site.shares_process]
    assert apart == [CENTRE, SPARE]


def test_the_story_lasts_as_long_as_asked() -> None:
    assert script_lasting(30.0).text == script_text()
    assert script_lasting(5.0).text.count(f"tps = 24, rows = {READINGS}") == len(ROOMS)


def test_show_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    show_script()
    assert capsys.readouterr().out == script_text()


def test_a_tail_gives_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    tail = GrowingFile(path)
    assert tail.new() == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert tail.new() == [{"a": 1}, {"a": 2}]
    assert tail.new() == []
    with path.open("a") as file:
        file.write(": 3}\n")
    assert tail.new() == [{"a": 3}]


def test_latency_is_from_event_time_until_seen() -> None:
    made = record(alarms=3)
    assert made.latency_ms(0.5) == pytest.approx(100.0)
    assert made.alarms_per_room()["room2"] == 3
    assert made.alarms_per_room()["room1"] == 0
    assert Record().latency_ms(0.5) is None


def test_a_curve_rises_with_the_temperature() -> None:
    assert [bar(celsius) for celsius in (-40.0, 21.0, 70.0, 500.0)] == ["▁", "▁", "▅", "█"]
    assert curve([21.0] * 50 + [500.0], width=3).plain == "▁▁█"


@pytest.mark.parametrize("alarms", [0, 1, 100])
@pytest.mark.parametrize("temperatures", [0, 1, 100])
def test_the_screen_never_changes_its_size(alarms: int, temperatures: int) -> None:
    shown = lines(screen(record(alarms, temperatures), MOMENT, replaced()))
    assert len(shown) == len(lines(screen(Record(), MOMENT, Failure()))) <= 23
    assert max(map(len, shown)) <= 80


def test_no_line_is_wider_than_a_terminal() -> None:
    assert max(map(len, lines(summary(record(alarms=9), MOMENT, replaced())))) <= 80
    assert "room2 119.0 °C" in plain_line(record(), MOMENT, Failure())
    assert "room1 –" in plain_line(Record(), MOMENT, Failure())
    assert plain_line(Record(), MOMENT, replaced()).endswith("protected again by room1")


# -- the failure -----------------------------------------------------------------------------------


def protection(site: str, standby: str | None, tasks: Iterable[TaskReport]) -> SystemStatus:
    return a_status(up(SPARE, *tasks), protection=dict.fromkeys(ALARMS, assigned(site, standby)))


def taken_over(name: str, at: float) -> TaskReport:
    return a_task(name, SPARE, standby=guarding(timeline={"claimed": at}))


def replaced() -> Failure:
    """Killed at 100 s, taken over until 100.3 s, protected again at 102 s."""
    failure = Failure(killed=100.0)
    tasks = [taken_over(name, 100.1 + 0.1 * index) for index, name in enumerate(ALARMS)]
    failure.look(protection(SPARE, "room1", tasks), now=102.0)
    return failure


def test_the_story_of_the_centre() -> None:
    failure = Failure()
    failure.look(a_status(), now=1.0)
    assert failure.line() == "centre raises the alarms, not protected yet"
    failure.look(protection(CENTRE, SPARE, []), now=2.0)
    assert failure.line() == "centre raises the alarms, protected by centre2"
    failure.killed = 100.0
    failure.look(protection(CENTRE, SPARE, [taken_over("alarm1", 100.1)]), now=100.2)
    assert (failure.line(), failure.took_ms) == ("centre killed", None)
    whole = replaced()
    assert whole.took_ms == pytest.approx(300.0)
    assert whole.primary == SPARE
    assert whole.line() == (
        "centre killed → centre2 took over after 300 ms → protected again by room1"
    )


def test_alarms_on_their_way_do_not_end_the_silence() -> None:
    made = Record()
    for seen in (99.0, 100.05, 100.5, 101.0):
        made.add_alarm("room2", 60.0, ts_us=0, seen=seen)
    assert replaced().without_alarms_s(made.alarms) == pytest.approx(0.5)
    assert Failure().without_alarms_s(made.alarms) is None


def test_the_verdict_compares_alarms_with_temperatures() -> None:
    """Of 20, 21, … 52 the last two are above 50."""
    made = record(temperatures=33)
    for room in ROOMS:
        for index in (31, 32):
            made.add_alarm(room, 20.0 + index, ts_us=1_000_000 * index, seen=1.0)
    assert verdict(made) == Verdict(alarms=6, lost=0, doubled=0, false=0)
    assert str(verdict(made)) == "6 alarms, none lost, none doubled"
    made.add_alarm("room1", 51.0, ts_us=31_000_000, seen=2.0)
    made.add_alarm("room1", 51.0, ts_us=5, seen=2.0)
    made.add_temperature("room3", 90.0, ts_us=77)
    assert str(verdict(made)) == "8 alarms, 1 lost, 1 doubled, 1 for no reason"
    assert not verdict(made).right


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_session(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_raises_alarms_and_leaves_nothing_behind(tmp_path: Path) -> None:
    output, temporary = tmp_path / "kept", tmp_path / "temporary"
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "anabranch",
        "demo",
        "--quick",
        "--for",
        "8s",
        "--out",
        str(output),
    ]
    with subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    assert err.startswith("Starting Spark …\n")
    assert "Traceback" not in err
    assert "Watch it on the dashboard too: http://127.0.0.1:" in out
    assert "From reading to alarm file it took" in out
    assert "centre killed → centre2 took over after" in out
    assert "alarms, none lost, none doubled, " in out
    assert "s without alarms." in out
    for room in ROOMS:
        temperatures = [row["celsius"] for row in rows(output / temperature_file(room))]
        alarms = rows(output / alarm_file(room))
        assert len(temperatures) == READINGS / 2
        assert [row["celsius"] for row in alarms] == [t for t in temperatures if t > ALARM_ABOVE]
        assert [row["_pos"] for row in alarms] == list(range(1, len(alarms) + 1))
        assert alarms
    patience = time.monotonic() + 15.0
    while in_session(process.pid) and time.monotonic() < patience:
        time.sleep(0.1)
    assert in_session(process.pid) == []
    assert list(temporary.iterdir()) == []
