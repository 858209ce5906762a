"""Statements in the browser: mistakes underlined, EXPLAIN before running, history; and what an
operator does besides.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

from nicegui import ui

from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError, ScriptError
from anabranch.face.pages.frame import asked_first, frame
from anabranch.face.system import System


def add_operations(system: System) -> None:
    with ui.expansion("Operate", icon="build").classes("w-full"):
        with ui.row().classes("items-end"):
            ui.button("What would move?", on_click=lambda: _say(system.would_move))
            ui.button("Place again", on_click=lambda: _say(system.replan)).props("outline")
        with ui.row().classes("items-end"):
            query = ui.select([], label="query").classes("w-40").props("dense")
            target = ui.select([], label="to site").classes("w-40").props("dense")
            ui.button("Move", on_click=lambda: _move(system, query, target)).props("outline")
        with ui.row().classes("items-end"):
            victim = ui.select([], label="site").classes("w-40").props("dense")
            kill = asked_first(
                "Kill the site's process at once, as a failure would?",
                "Kill",
                lambda: _kill(system, victim),
            )
            ui.button("Kill …", color="negative", on_click=kill.open).props("outline")
            stop = asked_first("Stop the whole system?", "Stop", lambda: _stop(system))
            ui.button("Stop the system …", color="negative", on_click=stop.open).props("outline")

    def fill() -> None:
        """Fills the choices with what exists now, and keeps a choice that is still possible."""
        now = system.watch.now
        queries = [one.name for one in now.queries]
        up = [one.name for one in now.sites if one.state == "up"]
        for select, options in ((query, queries), (target, up), (victim, up)):
            if select.options != options:
                kept = select.value if select.value in options else None
                select.set_options(options, value=kept)

    fill()
    ui.timer(2.0, fill)


async def _say(ask: Callable[[], str]) -> None:
    """Shows what the system answers, or why it does not answer."""
    try:
        ui.notify(await asyncio.to_thread(ask), type="positive", multi_line=True)
    except AnabranchError as error:
        ui.notify(error.line(), type="negative", multi_line=True)


async def _move(system: System, query: ui.select, target: ui.select) -> None:
    name, site = query.value, target.value
    if not (name and site):
        ui.notify("Choose a query and a site first.")
        return
    await _say(lambda: f"{name} moved from {system.move(name, site)} to {site}")


async def _kill(system: System, victim: ui.select) -> None:
    if not victim.value:
        ui.notify("Choose a site first.")
        return
    await _say(lambda: f"process {system.kill(victim.value)} of {victim.value} killed")


async def _stop(system: System) -> None:
    system.stop()
    ui.notify("The system is stopping.", type="warning")


_PLACE = re.compile(r":(\d+):(\d+)$")
_EXAMPLE = "SHOW QUERIES;\n"


def add_sql(system: System) -> None:
    @ui.page("/sql")
    def sql() -> None:
        ui.add_css(".a-wrong { text-decoration: underline wavy #dc2626; }")
        with frame("SQL", "/sql") as looks:
            box = _Box(system)
            looks.on_change(box.darken)
            add_operations(system)


class _Box:
    """The editor, its buttons, and what the system said last."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._editor = ui.codemirror(_EXAMPLE, language="SQL", keymap={"Mod-Enter": self._run})
        self._editor.classes("w-full h-64")
        with ui.row().classes("items-center"):
            ui.button("Run", on_click=self._run).tooltip("Ctrl-Enter")
            ui.button("Explain", on_click=self._explain).props("outline")
            self._earlier = ui.select(
                _labels(system.statements), label="earlier", on_change=self._bring_back
            )
            self._earlier.classes("w-64").props("dense")
        self._answers = ui.column().classes("w-full")

    async def _run(self) -> None:
        text = self._editor.value
        await self._say(lambda: self._system.execute(text))
        self._earlier.set_options(_labels(self._system.statements))

    def darken(self, dark: bool) -> None:
        self._editor.set_theme("vscodeDark" if dark else "basicLight")

    async def _explain(self) -> None:
        text = self._editor.value
        await self._say(lambda: [self._system.explain(text)])

    async def _say(self, ask: Callable[[], list[Answer]]) -> None:
        self._editor.decorations = []
        try:
            answers = await asyncio.to_thread(ask)
        except AnabranchError as error:
            self._underline(error)
            answers = [Answer("line", text=f"error: {error.line()}")]
        self._answers.clear()
        with self._answers:
            for answer in answers:
                _show(answer)

    def _underline(self, error: AnabranchError) -> None:
        """Marks the place where the script is wrong, as its excerpt underlines it."""
        place = _PLACE.search(error.place)
        if not (isinstance(error, ScriptError) and place):
            return
        lines = self._editor.value.splitlines(keepends=True)
        begin = sum(map(len, lines[: int(place[1]) - 1])) + int(place[2]) - 1
        end = min(begin + max(1, error.excerpt.count("^")), len(self._editor.value))
        if begin < end:
            self._editor.decorations = [
                {"kind": "mark", "from": begin, "to": end, "class": "a-wrong"}
            ]

    def _bring_back(self) -> None:
        if self._earlier.value:
            self._editor.value = self._earlier.value


def _labels(statements: Iterable[str]) -> dict[str, str]:
    """Labels each statement by its first line, as far as there is room."""
    return {one: " ".join(one.split())[:80] for one in statements}


def _show(answer: Answer) -> None:
    if answer.text:
        wrong = answer.text.startswith("error:")
        ui.label(answer.text).classes("a-mono" + (" text-negative" if wrong else ""))
    if answer.kind == "table":
        columns = [
            {"name": one, "label": one, "field": one, "align": "left"} for one in answer.columns
        ]
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        ui.table(columns=columns, rows=rows).props("dense flat wrap-cells").classes("w-full")
