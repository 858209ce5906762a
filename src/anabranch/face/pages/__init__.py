"""The dashboard: one module a view."""

from __future__ import annotations

from fastapi import FastAPI

from anabranch.face.system import System


def add_pages(app: FastAPI, system: System) -> None:
    """Adds the pages. NiceGUI takes a second to load, so only a system that shows itself loads
    it.
    """
    from nicegui import ui

    from anabranch.face.pages.overview import add_overview
    from anabranch.face.pages.query import add_query
    from anabranch.face.pages.sql import add_sql
    from anabranch.face.pages.timeline import add_timeline

    add_overview(system)
    add_query(system)
    add_timeline(system)
    add_sql(system)
    ui.run_with(app, title="Anabranch", dark=None, show_welcome_message=False)
