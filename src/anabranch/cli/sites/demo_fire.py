"""The demonstration's first scene: a fire, live, and the death of the security centre."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.live import Live

from anabranch.cli.show.tables import out
from anabranch.coordinator.status.report import SystemStatus
from anabranch.demo.apartment import CENTRE, KILL_AFTER, script_lasting
from anabranch.demo.failure import Failure
from anabranch.demo.record import Record, Watcher
from anabranch.demo.screen import Moment, plain_line, screen, summary
from anabranch.demo.verdict import verdict
from anabranch.errors import TaskError

if TYPE_CHECKING:
    from anabranch.cli.queries.run import Run

PLAIN_S = 2.0
"""Between two lines where there is no terminal."""
REDRAW_S = 0.2
GRACE_S = 30.0
"""What is still on its way so long after the last reading is no longer waited for."""

Look = Callable[[Moment], None]
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
    if not (found := verdict(watcher.record)).right:
        raise TaskError(f"the alarms are not those of a run without failures: {found}")


class _Clock:
    """Turns the coordinator's status into moments; time begins with the first reading."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun: float | None = None

    def moment(self, status: SystemStatus) -> Moment:
        sources = list(status.sources())
        readings = {source.site: source.rows for source in sources}
        if self._begun is None and any(readings.values()):
            self._begun = time.monotonic()
        elapsed = time.monotonic() - self._begun if self._begun is not None else 0.0
        rates = {source.site: source.rate for source in sources}
        return Moment(elapsed, self._seconds, readings, rates)


def _watch(run: Run, record: Record, failure: Failure, seconds: float, kill: Kill | None) -> Moment:
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


def _is_time(moment: Moment, record: Record, failure: Failure) -> bool:
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

    def look_if_due(moment: Moment) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + interval_s
            look(moment)

    return look_if_due
