"""Statements in the browser: mistakes underlined, EXPLAIN before running, history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable

from nicegui import ui

from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError, ScriptError
from anabranch.face.pages.frame import frame
from anabranch.face.pages.operate import add_operations
from anabranch.face.system import System

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
