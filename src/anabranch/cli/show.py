"""What the terminal shows: answers to statements, the table of queries, errors."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from anabranch.cli.show_protection import is_taken_over, primaries, protection_lines
from anabranch.errors import AnabranchError, ScriptError, from_dict

WIDE = 500
out = Console(highlight=False, soft_wrap=True)
if not out.is_terminal:  # a file or pipe has no width: cut nothing off
    out = Console(highlight=False, soft_wrap=True, width=WIDE)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def show_error(error: AnabranchError) -> None:
    """One line: place, what, remedy; below it the place in the script, if it was one."""
    err.print(f"[bold red]error:[/] {escape(error.line())}")
    if isinstance(error, ScriptError) and error.excerpt:
        for line in error.excerpt.splitlines():
            err.print(f"  {escape(line)}", style="dim")


def show_answer(answer: dict[str, Any]) -> None:
    if answer["kind"] == "table":
        if answer["text"]:
            out.print(escape(answer["text"]), style="dim")
        out.print(plain_table(answer["columns"], answer["rows"]))
    else:
        out.print(escape(answer["text"]))


def plain_table(columns: Any, rows: Any) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def queries_table(status: dict[str, Any]) -> RenderableType:
    """Queries with their rates, latency, queue and site; below it what is wrong, if anything."""
    table = Table(
        "query", "site", "state", "in/s", "out/s", "tuples out", "queue", "p50", "p99",
        box=None, pad_edge=False, header_style="bold",
    )  # fmt: skip
    for column in table.columns[3:]:
        column.justify = "right"
    tasks = primaries(status)
    sinks = {task["query"]: task for task in tasks if task["sink"]}
    for task in tasks:
        if task["name"] == task["query"]:  # parts of a query that run elsewhere are not shown
            table.add_row(*_task_row(task, sinks.get(task["query"])))
    shown = {task["name"] for task in tasks}
    for query in (*status["reads"], *status["pockets"]):
        if query not in shown:
            state = "taking over" if is_taken_over(query, status) else "lost"
            table.add_row(escape(query), "", _state(state))
    lines = [*_source_lines(status), *_problem_lines(status), *_pocket_lines(status)]
    return Group(table, *protection_lines(status), *(Text(line, style="dim") for line in lines))


def _task_row(task: dict[str, Any], sink: dict[str, Any] | None) -> list[str]:
    last = sink or task
    queue = task["queue"] + (sink["queue"] if sink else 0)
    state = last["state"] if task["state"] in ("running", "done") else task["state"]
    return [
        escape(task["query"]), task["site"], _state(state),
        f"{task['rate_in']:,.0f}", f"{task['rate_out']:,.0f}", f"{task['rows_out']:,}",
        f"{queue:,}", _ms(last["p50_ms"]), _ms(last["p99_ms"]),
    ]  # fmt: skip


def _state(state: str) -> str:
    colour = {"running": "green", "done": "cyan", "failed": "bold red", "lost": "bold red"}.get(
        state, "yellow"
    )
    return f"[{colour}]{state}[/]"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def _source_lines(status: dict[str, Any]) -> list[str]:
    lines = []
    for site in status["sites"]:
        for source in site["sources"]:
            left_out = [f"{source[key]:,} {key}" for key in ("late", "skipped") if source[key]]
            if left_out:
                lines.append(f"stream {source['stream']}: {', '.join(left_out)} left out")
    return lines


def _problem_lines(status: dict[str, Any]) -> list[str]:
    lines = [f"site {site['site']}: {site['problem']}" for site in status["sites"]
             if site["state"] != "up"]  # fmt: skip
    for site in status["sites"]:
        for part in (*site["sources"], *site["tasks"]):
            if part["error"]:
                standby = f"standby at {site['site']}: " if part.get("role") == "standby" else ""
                lines.append(standby + from_dict(part["error"]).line())
            elif part.get("problem"):
                name = part.get("name") or f"stream {part['stream']}"
                lines.append(f"{name}: {part['problem']}; trying again")
    return lines


def _pocket_lines(status: dict[str, Any]) -> list[str]:
    """What pockets have run into, and where in the user's code the newest of it was."""
    lines = []
    for task in (task for site in status["sites"] for task in site["tasks"]):
        pocket = task.get("pocket") or {"traceback": ""}
        if pocket["traceback"]:
            skipped, restarts = f"{pocket['skipped']:,} skipped", f"{pocket['restarts']:,} restarts"
            lines.append(f"pocket {task['name']}: {skipped}, {restarts}, the last time for")
            lines += [f"  {line}" for line in pocket["traceback"].splitlines()]
    return lines


def system_tables(status: dict[str, Any]) -> RenderableType:
    """Everything `anabranch status` shows: sites, streams from outside, queries."""
    return Group(sites_table(status), "", streams_table(status), "", queries_table(status))


def streams_table(status: dict[str, Any]) -> RenderableType:
    rows = [
        (one["stream"], one["site"], one["state"], f"{one['rate']:,.0f}", f"{one['rows']:,}",
         f"{one['late']:,}", f"{one['skipped']:,}")
        for site in status["sites"] for one in site["sources"]
    ]  # fmt: skip
    return plain_table(("stream", "site", "state", "in/s", "tuples", "late", "skipped"), rows)


def sites_table(status: dict[str, Any]) -> RenderableType:
    rows = [
        (site["site"], site["address"], site["state"], len(site["sources"]), len(site["tasks"]))
        for site in status["sites"]
    ]
    return plain_table(("site", "address", "state", "sources", "tasks"), rows)


def command_line(command: str) -> str:
    """`command` as it can be typed here: the program may not be on the PATH."""
    program, _, rest = command.partition(" ")
    if program != "anabranch" or shutil.which(program):
        return command
    started = Path(sys.argv[0]).resolve()
    here = Path.cwd()
    shown = started.relative_to(here) if started.is_relative_to(here) else started
    return f"{shown} {rest}"


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What we and the processes we start print goes there meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
