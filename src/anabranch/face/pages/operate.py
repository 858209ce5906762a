"""An operator's actions besides statements: place again, move, kill, stop. Each asks before it
acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui import ui

from anabranch.errors import AnabranchError
from anabranch.face.pages.frame import asked_first
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
