"""What goes on by itself is begun again when it fails, and what failed is counted and shown."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from random import Random

import pytest

from anabranch.cli.show.tables import out, queries_table
from anabranch.errors import StorageError
from anabranch.runtime.loop import Loop, supervised
from anabranch.runtime.troubles import CALM_S, FIRST_S, MOST_NAMES, MOST_S, TroubleReport, Troubles
from simulation.clock import Clock, Process, Violation
from tests.cli.statuses import site, status
from tests.link.support import eventually


def test_whatever_ends_it_it_goes_on_from_what_it_knows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loop, rounds = Loop("supervised"), [0]
    errors = [OSError(28, "no room"), sqlite3.OperationalError("disk I/O error"), ValueError("bug")]

    async def run() -> None:
        while rounds[0] < 6:
            rounds[0] += 1
            await loop.sleep(0.001)
            if errors:
                raise errors.pop(0)

    spawned = loop.supervise("acks to centre", run)
    eventually(lambda: spawned.done)
    assert rounds[0] == 6
    (trouble,) = loop.troubles.report(loop.now())
    assert (trouble.name, trouble.times) == ("acks to centre", 3)
    assert trouble.error == "ValueError: bug"
    assert "acks to centre failed" in capsys.readouterr().err
    loop.close()


def test_one_that_is_cancelled_is_not_begun_again() -> None:
    loop, begun = Loop("cancelled"), [0]

    async def run() -> None:
        begun[0] += 1
        await loop.sleep(60)

    spawned = loop.supervise("leases", run)
    eventually(lambda: begun[0] == 1)
    spawned.cancel()
    assert spawned.done
    assert begun[0] == 1
    assert not loop.troubles.report(loop.now())
    loop.close()


def test_the_pause_doubles_up_to_a_limit_and_begins_anew_after_a_calm() -> None:
    troubles, now = Troubles(), 100.0
    pauses = []
    for _ in range(9):
        pauses.append(troubles.happened("watch", OSError("no"), now))
        now += 1
    assert pauses[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert pauses[-1] == MOST_S
    now += CALM_S + 1
    assert troubles.happened("watch", OSError("no"), now) == FIRST_S
    (shown,) = troubles.report(now + 1)
    assert (shown.times, shown.row, shown.goes_on) == (10, 1, False)
    assert troubles.report(now + 3 * MOST_S)[0].goes_on
    for number in range(2 * MOST_NAMES):
        troubles.happened(f"serve-{number}", OSError("no"), now)
    assert len(troubles.report(now)) == MOST_NAMES


def test_a_thread_goes_on_too() -> None:
    done, troubles = threading.Event(), Troubles()
    errors = [RuntimeError("can't start new thread"), ValueError("bug")]

    def run() -> None:
        if errors:
            raise errors.pop()
        done.set()

    supervised("site-watch", run, troubles=troubles).start()
    assert done.wait(10)
    assert troubles.report(0.0)[0].times == 2


def test_in_the_simulation_a_bug_is_one_and_a_full_disk_is_survived() -> None:
    clock = Clock()
    process, rounds = Process("centre", clock, Random(0)), [0]
    errors: list[Exception] = [StorageError("full"), OSError(5, "I/O error"), KeyError("bug")]

    async def run() -> None:
        rounds[0] += 1
        await process.sleep(0.01)
        raise errors.pop(0)

    process.supervise("leases", run)
    with pytest.raises(Violation, match="leases: KeyError"):
        clock.run(60_000, lambda: False)
    assert rounds[0] == 3


def test_status_names_what_does_not_go_on_once_for_sites_that_share_a_process() -> None:
    trouble = TroubleReport("acks to centre", "no room", 9, 3, 4.0, 0.1, goes_on=False)
    over = replace(trouble, name="heartbeat", goes_on=True)
    two = [site(name, troubles=(trouble, over)) for name in ("centre", "centre2")]
    with out.capture() as capture:
        out.print(queries_table(status(*two)))
    text = " ".join(capture.get().split())
    line = "site centre: acks to centre failed 3 times in 4 s: no room; trying again"
    assert text.count(line) == 1
    assert "heartbeat" not in text
