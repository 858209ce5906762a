"""`anabranch submit`, and what `anabranch status` says of pockets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.coordinator.service.state import write_endpoint
from bench.systems.system import System
from tests.cli.conftest import Ended, anabranch
from tests.pockets.support import ALARM, TICKS, wait_for

__all__ = ["anabranch"]

Run = Callable[..., Ended]
BROKEN = """
from anabranch.pocket import Pocket

class Broken(Pocket):
    query = "SELECT n FROM ticks"
    output = "CREATE STREAM broken_out (message string) AT room2"
    on_error = "restart"

    def row(self, row):
        return {"message": 1 / 0}

class Other(Broken):
    pass
"""


@pytest.fixture
def state(system: System, tmp_path: Path) -> str:
    write_endpoint(system.state, system.coordinator.address, system.credentials)
    return str(system.state)


def test_submit_says_what_was_made(
    anabranch: Run, system: System, state: str, tmp_path: Path
) -> None:
    system.execute(TICKS)
    (tmp_path / "alarm.py").write_text(ALARM)
    ended = anabranch("submit", str(tmp_path / "alarm.py"), "--name", "fire", "--state", state)
    assert ended == Ended(
        0,
        "pocket fire started at room1\n"
        "  reads query fire_input, which came with it\n"
        "  fills stream alarm, which came with it\n",
        "",
    )
    system.wait()
    shown = anabranch("status", "--state", state).out
    assert re.search(r"^fire +room1 +done +3 ", shown, re.MULTILINE)


def test_a_failing_pocket_is_seen_in_the_status(
    anabranch: Run, system: System, state: str, tmp_path: Path
) -> None:
    system.execute(TICKS)
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    several = anabranch("submit", str(file), "--state", state)
    assert several.code == 1
    assert "there are several pockets: Broken, Other. Choose one, as in --class Broken." in (
        several.err
    )
    assert anabranch("submit", str(file), "--class", "None", "--state", state).code == 1
    assert anabranch("submit", str(file), "--class", "Broken", "--state", state).code == 0
    wait_for(system, "Broken", "failed")
    shown = anabranch("status", "--state", state).out
    assert f"{file}:10: pocket Broken failed: ZeroDivisionError: division by zero" in shown
    assert "pocket Broken: 0 skipped, 2 restarts, the last time for" in shown
    assert 'return {"message": 1 / 0}' in shown
    status = json.loads(anabranch("status", "--json", "--state", state).out)
    (task,) = [one for site in status["sites"] for one in site["tasks"] if one["name"] == "Broken"]
    assert task["pocket"]["restarts"] == 2
    assert "ZeroDivisionError" in task["pocket"]["traceback"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "bad.py: this file defines no pocket. Write class Name(Pocket): …"),
        ("def (", "bad.py:1: loading it failed: SyntaxError"),
        ("1 / 0", "bad.py:1: loading it failed: ZeroDivisionError"),
        (None, "bad.py: there is no such pocket"),
    ],
)
def test_files_that_are_no_pockets(
    anabranch: Run, state: str, tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "bad.py").write_text(text)
    ended = anabranch("submit", str(tmp_path / "bad.py"), "--state", state)
    assert ended.code == 1
    assert message in ended.err
