"""Rows of a query as they come, while somebody looks."""

from __future__ import annotations

from typing import Any

from nicegui import background_tasks, ui

from anabranch.errors import AnabranchError
from anabranch.face.system import System

_ROWS = 50
_LOOK_S = 0.5


def add_tail(system: System, name: str) -> None:
    """Shows the rows that the filter lets through, the newest first, while the switch is on."""
    with ui.row().classes("items-center w-full"):
        switch = ui.switch("rows, live")
        wanted = ui.input(placeholder="only rows that contain …").props("dense clearable")
    table = ui.table(rows=[], row_key="_pos", pagination=_ROWS).classes("w-full")
    table.props("dense flat hide-pagination")
    table.bind_visibility_from(switch, "value")
    client = ui.context.client

    def show(rows: list[dict[str, Any]]) -> None:
        text = [{key: str(value) for key, value in row.items()} for row in rows]
        kept = [row for row in text if (wanted.value or "") in " ".join(row.values())]
        if kept:
            table.columns = [
                {"name": key, "label": key, "field": key, "align": "left"} for key in kept[0]
            ]
            table.rows = [*reversed(kept), *table.rows][:_ROWS]
            table.update()

    async def follow() -> None:
        opened = system.tail(name, client.ip or "")
        reader = await system.in_tail(opened.__enter__)
        try:
            while switch.value and client.has_socket_connection:
                rows = await system.in_tail(system.rows_of, reader, _ROWS, _LOOK_S)
                if rows is None:
                    break
                show(rows)
        finally:
            await system.in_tail(opened.__exit__, None, None, None)

    async def safely() -> None:
        try:
            await follow()
        except AnabranchError as error:
            with client:
                ui.notify(error.line(), type="negative", multi_line=True)

    switch.on_value_change(lambda event: background_tasks.create(safely()) if event.value else None)
