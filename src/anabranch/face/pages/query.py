"""One query: what it says, how it runs and why so, how it keeps its word, and its rows as they
come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from nicegui import background_tasks, ui

from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import AnabranchError
from anabranch.face.model import QueryView, Snapshot
from anabranch.face.pages.frame import asked_first, colour_of, every_second, frame
from anabranch.face.promises import told
from anabranch.face.system import System
from anabranch.link.message import plain
from anabranch.units import show_ms

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

    def show(rows: list[dict[str, object]]) -> None:
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


_CHART_S = 300
_P50, _P99, _RATE, _DUE = "#0d9488", "#f59e0b", "#6366f1", "#dc2626"
_LINE = {"lineStyle": {"color": "#94a3b8", "opacity": 0.25}}
_Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, columns, rows."""
_TEXT = {"color": "#94a3b8"}


def add_query(system: System) -> None:
    @ui.page("/query/{name}")
    async def query(name: str) -> None:
        with frame(name):
            await _view(system, name)


async def _view(system: System, name: str) -> None:
    if system.watch.now.query(name) is None:
        ui.label(f"There is no query {name}.").classes("text-h6")
        ui.link("All there is", "/")
        return
    with ui.row().classes("items-center w-full"):
        ui.label(name).classes("text-h5")
        state = ui.badge()
        ui.space()
        _buttons(system, name)
    figures = ui.label().classes("text-body1")
    promises = ui.column().classes("q-gutter-none w-full")
    chart = ui.echart(_chart_options(system.watch.history, name)).classes("w-full h-64")
    details = ui.row().classes("w-full items-stretch")
    with ui.row().classes("w-full items-stretch"):
        await _text("as written", system.definition, name)
        await _text("as it runs", system.explain_query, name)
    add_tail(system, name)
    shown: dict[str, object] = {}

    def show() -> None:
        query = system.watch.now.query(name)
        if query is None:
            state.text = "gone"
            return
        state.text = query.state
        state.props(f"color={colour_of(query.state)}")
        figures.text = _figures(query)
        _renew(promises, details, query, shown)
        chart.options.clear()
        chart.options.update(_chart_options(system.watch.history, name))
        chart.update()

    every_second(show)


def _figures(query: QueryView) -> str:
    return (
        f"at {query.site or 'no site'} · {query.rate_in:,.0f} tuples/s in · "
        f"{query.rate_out:,.0f}/s out · {query.queue:,} wait · "
        f"p50 {show_ms(query.p50_ms)} · p99 {show_ms(query.p99_ms)}"
    )


def _renew(
    promises: ui.column, details: ui.row, query: QueryView, shown: dict[str, object]
) -> None:
    """Draws again only what has changed."""
    lines = [("error", query.error, False)] if query.error else []
    lines += told(query)
    if lines != shown.get("lines"):
        shown["lines"] = lines
        promises.clear()
        with promises:
            for what, text, well in lines:
                with ui.row().classes("items-start no-wrap q-gutter-sm"):
                    icon, colour = ("check_circle", "positive") if well else ("warning", "warning")
                    ui.icon(icon, color=colour).classes("q-mt-xs")
                    ui.label(f"{what}: {text}").classes("a-wrap")
    tables = _tables(query)
    if tables != shown.get("tables"):
        shown["tables"] = tables
        details.clear()
        with details:
            for title, columns, rows in tables:
                _card(title, columns, rows)


def _tables(query: QueryView) -> list[_Table]:
    """The tables: where it is and why; the steps of its deadline; the workers of its estimates."""
    steps = query.deadline.steps if query.deadline else ()
    workers = query.estimates.workers if query.estimates else ()
    stage = plain(query.stage) if query.stage else {}
    tables: list[_Table] = [
        (
            "placed by the system",
            ("operator", "site", "why"),
            [(one.task, one.site, one.why) for one in query.placed],
        ),
        (
            "sub-deadlines",
            ("task", "site", "sub-deadline", "least laxity"),
            [
                (one.task, one.site, show_ms(one.sub_deadline_ms), show_ms(one.laxity_ms))
                for one in steps
            ],
        ),
        (
            "workers",
            ("worker", "site", "keys", "bound", "if it dies", "why", "to estimate"),
            [
                (
                    one.query,
                    one.site,
                    str(one.keys),
                    "–" if one.bound is None else f"± {one.bound:.3g}",
                    one.protection,
                    one.why,
                    f"{one.damaged:,} windows",
                )
                for one in workers
            ],
        ),
        ("stage", ("what", "is"), [(key, str(value)) for key, value in stage.items()]),
    ]
    return [one for one in tables if one[2]]


def _card(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with ui.card().classes("col-12 col-md overflow-auto"):
        ui.label(title).classes("text-overline")
        defined = [{"name": one, "label": one, "field": one, "align": "left"} for one in columns]
        filled = [dict(zip(columns, row, strict=True)) for row in rows]
        ui.table(columns=defined, rows=filled).props("dense flat wrap-cells").classes("w-full")


async def _text(title: str, ask: Callable[[str], Answer], name: str) -> None:
    with ui.card().classes("col-12 col-md overflow-auto"):
        ui.label(title).classes("text-overline")
        try:
            text = (await asyncio.to_thread(ask, name)).text
        except AnabranchError as error:
            text = error.line()
        ui.label(text).classes("a-mono text-caption")


def _chart_options(history: Iterable[Snapshot], name: str) -> dict[str, object]:
    points = [(one.at, query) for one in tuple(history)[-_CHART_S:] if (query := one.query(name))]
    series = {
        ("p50 ms", _P50): [[at * 1e3, one.p50_ms] for at, one in points],
        ("p99 ms", _P99): [[at * 1e3, one.p99_ms] for at, one in points],
        ("out/s", _RATE): [[at * 1e3, round(one.rate_out, 1)] for at, one in points],
    }
    due = points[-1][1].deadline if points else None
    return {
        "animation": False,
        "legend": {"top": 0, "textStyle": _TEXT},
        "tooltip": {"trigger": "axis"},
        "grid": {"left": 50, "right": 50, "top": 30, "bottom": 25},
        "xAxis": {"type": "time", "axisLabel": _TEXT},
        "yAxis": [
            {
                "type": "value",
                "name": "ms",
                "nameTextStyle": _TEXT,
                "axisLabel": _TEXT,
                "splitLine": _LINE,
            },
            {
                "type": "value",
                "name": "tuples/s",
                "nameTextStyle": _TEXT,
                "axisLabel": _TEXT,
                "splitLine": {"show": False},
            },
        ],
        "series": [
            {
                "type": "line",
                "name": key,
                "showSymbol": False,
                "data": data,
                "color": colour,
                "yAxisIndex": int(key == "out/s"),
            }
            | (_deadline_mark(due.deadline_ms) if due and key == "p99 ms" else {})
            for (key, colour), data in series.items()
        ],
    }


def _deadline_mark(deadline_ms: float) -> dict[str, object]:
    return {
        "markLine": {
            "silent": True,
            "symbol": "none",
            "data": [{"yAxis": deadline_ms}],
            "lineStyle": {"color": _DUE},
            "label": {"formatter": "deadline", "color": _DUE, "position": "insideEndTop"},
        }
    }


def _buttons(system: System, name: str) -> None:
    sites = [one.name for one in system.watch.now.sites if one.state == "up"]
    drop = asked_first(f"Drop {name}? Its results end here.", "Drop", lambda: _drop(system, name))
    target = ui.select(sites, label="move to").classes("w-32").props("dense")
    ui.button("Move", on_click=lambda: _move(system, name, target.value)).props("outline")
    ui.button("Drop …", color="negative", on_click=drop.open).props("outline")


async def _move(system: System, name: str, site: str | None) -> None:
    if not site:
        ui.notify("Choose a site first.")
        return
    try:
        was = await asyncio.to_thread(system.move, name, site)
        ui.notify(f"{name} moved from {was} to {site}", type="positive")
    except AnabranchError as error:
        ui.notify(error.line(), type="negative", multi_line=True)


async def _drop(system: System, name: str) -> None:
    try:
        await asyncio.to_thread(system.execute, f"DROP QUERY `{name}`;")
        ui.navigate.to("/")
    except AnabranchError as error:
        ui.notify(error.line(), type="negative", multi_line=True)
