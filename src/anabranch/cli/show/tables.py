"""Prints on the terminal: answers to statements, the table of queries, errors."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from anabranch.cli.show.deadlines import deadline_lines
from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.scripts.replies import Answer
from anabranch.coordinator.status.description import primaries, protections, task_and_sink
from anabranch.errors import AnabranchError, ScriptError
from anabranch.link.reports import SpilledReport, TaskReport
from anabranch.terminal import printable
from anabranch.units import show_bytes, show_duration, show_ms

WIDE = 500
MOST_TROUBLES = 8
WORTH_TELLING = 0.005
"""Of the cost of all that the system has placed."""


class Terminal(Console):
    """A terminal that shows control characters in the text instead of obeying them."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


out = Terminal(emoji=False, highlight=False, soft_wrap=True)
if not out.is_terminal:  # a file or pipe has no width: cut nothing off
    out = Terminal(emoji=False, highlight=False, soft_wrap=True, width=WIDE)
err = Terminal(stderr=True, emoji=False, highlight=False, soft_wrap=True)


def show_error(error: AnabranchError) -> None:
    """Prints one line with place, message and remedy; below it the place in the script, if the
    error has one.
    """
    err.print(f"[bold red]error:[/] {escape(error.line())}")
    if isinstance(error, ScriptError) and error.excerpt:
        for line in error.excerpt.splitlines():
            err.print(f"  {escape(line)}", style="dim")


def show_answer(answer: Answer) -> None:
    if answer.kind == "table":
        if answer.text:
            out.print(escape(answer.text), style="dim")
        out.print(plain_table(answer.columns, answer.rows))
    else:
        out.print(escape(answer.text))


def plain_table(columns: Any, rows: Any) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


WHY = {
    "bytes": "upstream held much for them",
    "replay": "to read all of it again would have taken long",
}
"""Why a state was kept, in words."""


def queries_table(status: SystemStatus) -> RenderableType:
    """Queries with their rates, latency, queue and site; below it what is wrong, if anything."""
    table = Table(
        "query",
        "site",
        "state",
        "in/s",
        "out/s",
        "tuples out",
        "queue",
        "p50",
        "p99",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for column in table.columns[3:]:
        column.justify = "right"
    tasks = primaries(status.sites)
    for name, state in status.states.items():  # parts that run elsewhere are not shown
        row = [escape(name), "", _state(state.state)]
        task, sink = task_and_sink(name, status.workers, tasks)
        table.add_row(*(_task_row(row, task, sink) if task else row))
    lines = [
        *_reason_lines(status),
        *_source_lines(status),
        *_problem_lines(status),
        *_disk_lines(status),
        *_state_lines(status),
        *_pocket_lines(status),
        *_placement_lines(status),
        *_estimate_lines(status),
    ]
    deadlines = [
        Text(line, style="dim" if well else "yellow") for line, well in deadline_lines(tasks)
    ]
    if status.deadlines:
        deadlines.append(Text(f"deadlines: {status.deadlines}", style="yellow"))
    dim = [Text(line, style="dim") for line in lines]
    return Group(table, *_protection_lines(status), *deadlines, *dim)


def _protection_lines(status: SystemStatus) -> list[Text]:
    return [
        Text(f"{what}: {text}", style="dim" if well else "yellow")
        for what, text, well in protections(status)
    ]


def _task_row(row: list[str], task: TaskReport, sink: TaskReport | None) -> list[str]:
    """The row of a task. Positions are dense and go on after a take-over, so the last one is the
    number of tuples that came out.
    """
    last = sink or task
    name, _, state = row
    queue = task.queue + (sink.queue if sink else 0)
    return [
        name,
        escape(task.site),
        state,
        f"{task.rate_in:,.0f}",
        f"{task.rate_out:,.0f}",
        f"{task.position:,}",
        f"{queue:,}",
        show_ms(last.p50_ms),
        show_ms(last.p99_ms),
    ]


_COLOURS = {
    "running": "green",
    "done": "cyan",
    "failed": "bold red",
    "lost": "bold red",
    "no input": "bold red",
    "sink away": "bold red",
    "stuck": "bold red",
}


def _state(state: str) -> str:
    return f"[{_COLOURS.get(state, 'yellow')}]{state}[/]"


def _reason_lines(status: SystemStatus) -> list[str]:
    """The reasons why queries make no progress, unless a line about their protection gives them."""
    return [
        f"{'pocket' if name in status.pockets else 'query'} {name}: {found.state}: {found.reason}"
        for name, found in status.states.items()
        if found.reason and found.state != "taking over"
    ]


def _source_lines(status: SystemStatus) -> list[str]:
    lines = []
    for source in status.sources():
        if left_out := [f"{count:,} {why}" for why, count in source.left_out.items()]:
            lines.append(f"stream {source.stream}: {', '.join(left_out)} left out")
    return lines


def _problem_lines(status: SystemStatus) -> list[str]:
    lines = [
        f"site {site.site}{' ' if site.state == 'starting' else ': '}{site.problem}"
        for site in status.sites
        if site.state != "up"
    ]
    for site in status.sites:
        for source in site.sources:
            if source.error:
                lines.append(source.error.line())
            elif source.problem:
                lines.append(f"stream {source.stream}: {source.problem}; trying again")
        for task in site.tasks:
            if task.error:
                standby = f"standby at {site.site}: " if task.role == "standby" else ""
                lines.append(standby + task.error.line())
            elif task.problem:
                lines.append(f"{task.name}: {task.problem}; trying again")
        lines += [
            f"site {site.site}: still runs {name}, which was dropped; it is stopping it"
            for name in site.ghosts
        ]
    return [*lines, *_trouble_lines(status)]


def _disk_lines(status: SystemStatus) -> list[str]:
    """How much streams keep on disks, and for whom."""
    lines = []
    for site in status.sites:
        for stream, spill in site.spilled.items():
            behind = [_behind(name, rows, spill) for name, rows in spill.behind.items()]
            keep = [f"KEEP {spill.keep}"] if spill.keep else []
            whom = "; ".join([*behind, *keep]) or "open windows need it"
            kept = show_bytes(spill.bytes)
            lines.append(f"stream {stream}: {kept} on the disk of {site.site}: {whom}")
        if site.disk and site.disk.used >= site.disk.total:
            total = show_bytes(site.disk.total)
            gives = (
                "the oldest goes of what is only kept for those who come later"
                if site.disk.lets_go
                else "sources wait for the slowest of their readers"
            )
            lines.append(f"site {site.site}: its {total} for streams are used up; {gives}")
        if site.disk and site.disk.let_go:
            lines.append(
                f"site {site.site}: {site.disk.let_go:,} tuples went before KEEP said so, for want"
                " of room"
            )
    return lines


def _state_lines(status: SystemStatus) -> list[str]:
    """What windows hold that were so large that their state was kept, and what is in the way."""
    lines = []
    for task in primaries(status.sites):
        state = task.snapshot
        if state and state.problem:
            lines.append(f"site {task.site}: {state.problem}")
        if state and state.count and task.state == "running":
            held, kept = show_bytes(state.memory_bytes), show_bytes(state.nbytes)
            lines.append(
                f"query {task.name}: windows hold {held} at {task.site}; their state was kept"
                f" {state.age_s:g} s ago ({kept}), since {WHY[state.why]}"
            )
    return lines


def _behind(name: str, rows: int, spilled: SpilledReport) -> str:
    left_s = spilled.left_s.get(name)
    left = "" if left_s is None else f", which takes it {show_duration(1e6 * left_s)} more"
    return f"{name} is {rows:,} tuples behind{left}"


def _trouble_lines(status: SystemStatus) -> list[str]:
    """What processes could not do by themselves lately, each message once: sites may share a
    process.
    """
    lines = [
        *((f"site {site.site}", site.troubles) for site in status.sites),
        ("the coordinator", status.troubles),
    ]
    newest: dict[tuple[str, str], str] = {}
    for where, troubles in lines:
        for trouble in troubles:
            if not trouble.goes_on:
                times = "once" if trouble.row == 1 else f"{trouble.row:,} times"
                line = f"{where}: {trouble.name} failed {times} in {trouble.since_s:.0f} s:"
                newest.setdefault(
                    (trouble.name, trouble.error), f"{line} {trouble.error}; trying again"
                )
    left = [
        f"site {site.site}: {site.abandoned} threads of its JVM go on with instances that"
        " were stopped"
        for site in status.sites
        if site.abandoned
    ]
    return [*left, *newest.values()][:MOST_TROUBLES]


def _placement_lines(status: SystemStatus) -> list[str]:
    """Why operators that the system has placed are where they are. With a single site there is no
    choice, and an operator that costs nothing might be anywhere; for these there is no line.
    """
    if len(status.sites) < 2:
        return []
    return [
        f"{name} at {one.site}: {one.text}"
        for name, one in status.placement.items()
        if one.share >= WORTH_TELLING
    ]


def _estimate_lines(status: SystemStatus) -> list[str]:
    """For each approximate query: what was estimated, and what would be if a worker died now."""
    lines = []
    for name, approximation in status.approximations.items():
        lines.append(
            f"query {name}: {approximation.estimated:,} results estimated so far, within"
            f" {approximation.within:g} with {approximation.confidence:.0%}"
        )
        lines += [
            f"  {worker.query} at {worker.site}: {worker.protection}, {worker.why}"
            for worker in approximation.workers
        ]
        lines += [f"  {approximation.problem}"] if approximation.problem else []
    return lines


def _pocket_lines(status: SystemStatus) -> list[str]:
    """The errors of pockets, and where in the user's code the newest one was."""
    lines = []
    for task in status.tasks():
        if task.pocket and task.pocket.traceback:
            skipped = f"{task.pocket.skipped:,} skipped"
            restarts = f"{task.pocket.restarts:,} restarts"
            lines.append(f"pocket {task.name}: {skipped}, {restarts}, the last time for")
            lines += [f"  {line}" for line in task.pocket.traceback.splitlines()]
    return lines


def system_tables(status: SystemStatus) -> RenderableType:
    """Everything `anabranch status` shows: sites, streams from outside, queries."""
    return Group(sites_table(status), "", streams_table(status), "", queries_table(status))


def streams_table(status: SystemStatus) -> RenderableType:
    rows = [
        (
            one.stream,
            one.site,
            one.state,
            f"{one.rate:,.0f}",
            f"{one.rows:,}",
            f"{one.late:,}",
            f"{one.skipped:,}",
            f"{one.shed:,}",
        )
        for site in sorted(status.sites, key=lambda one: one.site)
        for one in site.sources
    ]
    columns = ("stream", "site", "state", "in/s", "tuples", "late", "skipped", "shed")
    return plain_table(columns, rows)


def sites_table(status: SystemStatus) -> RenderableType:
    rows = [
        (site.site, site.address, site.state, len(site.sources), len(site.tasks))
        for site in sorted(status.sites, key=lambda one: one.site)
    ]
    return plain_table(("site", "address", "state", "sources", "tasks"), rows)


def command_line(command: str) -> str:
    """`command` as it can be typed here; the program may not be on the PATH."""
    program, _, rest = command.partition(" ")
    if program != "anabranch" or shutil.which(program):
        return command
    started = Path(sys.argv[0]).resolve()
    folder = Path.cwd()
    shown = started.relative_to(folder) if started.is_relative_to(folder) else started
    return f"{shown} {rest}"


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """A moving line with the time that has passed, as long as the block runs. Yields a function
    that changes its text. Prints nothing where there is no terminal.
    """
    if not err.is_terminal:
        yield lambda said: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(escape(text))
        yield lambda said: progress.update(task, description=escape(said))


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """While the block runs, what we and the processes we start print goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
