"""Processes that wait to become a site."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from anabranch.config.cluster import SiteConfig
from anabranch.coordinator.service.processes import Spares, tell

REPEAT = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
PLAIN, OTHER = SiteConfig(name="a"), SiteConfig(name="b", master="local[1]")


class Started:
    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        made = subprocess.Popen([sys.executable, "-c", REPEAT], stdin=pipe, stdout=pipe)
        self.processes.append(made)
        return made


@pytest.fixture
def started() -> Iterator[Started]:
    started = Started()
    yield started
    for process in started.processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what was said to the dead
                if pipe:
                    pipe.close()


def heard(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout
    found: dict[str, object] = json.loads(process.stdout.readline())
    return found


def test_there_are_some_of_each_kind_of_spark(started: Started) -> None:
    spares = Spares(2, [PLAIN, OTHER, SiteConfig(name="c")], started)
    spares.fill()
    spares.fill()
    masters = [heard(one)["master"] for one in started.processes]
    assert sorted(map(str, masters)) == ["local[1]", "local[1]", "local[2]", "local[2]"]
    assert spares.stop() == started.processes
    assert [one.wait(10) for one in started.processes] == [-signal.SIGTERM] * 4


def test_one_is_taken_once_and_by_its_own_kind(started: Started) -> None:
    spares = Spares(1, [PLAIN, OTHER], started)
    assert spares.take(PLAIN) is None
    spares.fill()
    taken = spares.take(SiteConfig(name="z", conf={}))
    assert taken is not None
    assert heard(taken) == {"master": "local[2]", "conf": {}}
    assert spares.take(PLAIN) is None
    assert tell(taken, {"site": "z"})
    assert heard(taken) == {"site": "z"}
    spares.fill()
    assert spares.take(PLAIN) not in (None, taken)
    assert taken not in spares.stop()
    assert taken.poll() is None  # it is a site now, and whoever took it ends it


def test_the_dead_are_replaced_and_hear_nothing(started: Started) -> None:
    spares = Spares(1, [PLAIN], started)
    spares.fill()
    (dead,) = started.processes
    dead.kill()
    dead.wait()
    assert not tell(dead, {"site": "a"})
    assert spares.take(PLAIN) is None
    spares.fill()
    assert spares.take(PLAIN) is None  # one that dies by itself is given time
    spares.fill()
    assert spares.take(PLAIN) is started.processes[1]


def test_none_unless_asked_for(started: Started) -> None:
    Spares(0, [PLAIN], started).fill()
    assert started.processes == []
