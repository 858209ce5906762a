"""The one virtual system at a glance: sites, what runs on them, what flows and what waits."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

from nicegui import events, ui

from anabranch.face.model import WELL, QueryView, SiteView, Snapshot
from anabranch.face.pages.frame import POOR, colour_of, every_second, frame
from anabranch.face.picture import LEGEND, NARROW, WIDE, graph_options
from anabranch.face.promises import told
from anabranch.face.system import System
from anabranch.units import show_ms

_QUERY_COLUMNS = (
    "query",
    "site",
    "state",
    "in/s",
    "out/s",
    "results",
    "waiting",
    "p50",
    "p99",
    "promises",
)
_SITE_COLUMNS = ("site", "state", "load", "address")
_NARROW = 600
"""Pixels below which it is a phone."""
_STREAM_COLUMNS = ("stream", "site", "state", "tuples/s", "tuples", "left out")


def add_overview(system: System) -> None:
    @ui.page("/")
    def overview() -> None:
        with frame("System", "/"):
            view = _View(system)
            ui.timer(0.0, view.fit, once=True)


class _View:
    def __init__(self, system: System) -> None:
        self._system = system
        self._canvas = WIDE
        self._summary = ui.row().classes("items-center q-gutter-xs")
        self._chart = ui.echart(graph_options(system.watch.now), on_point_click=_follow)
        self._chart.classes("w-full").style("height: 56vh; min-height: 340px")
        _legend()
        self._queries = _table(_QUERY_COLUMNS, "query", text=3)
        self._queries.on("rowClick", lambda event: _open(event.args[1]["query"]))
        with ui.row().classes("w-full"):
            with ui.column().classes("col-12 col-md"):
                self._sites = _table(_SITE_COLUMNS, "site", text=2)
            with ui.column().classes("col-12 col-md"):
                self._streams = _table(_STREAM_COLUMNS, "stream", text=3)
        self._shown: dict[str, object] = {}
        every_second(self.show)

    async def fit(self) -> None:
        """Fits the picture to the viewer's screen. A viewer who has left already needs no
        picture.
        """
        with suppress(TimeoutError):
            if await ui.run_javascript("window.innerWidth") < _NARROW:
                self._canvas = NARROW
                self.show()

    def show(self) -> None:
        now = self._system.watch.now
        _renew(self._summary, now, self._shown)
        options = graph_options(now, self._canvas)
        if options != self._shown.get("options"):
            self._shown["options"] = options
            self._chart.options.clear()
            self._chart.options.update(options)
            self._chart.update()
        for table, rows in (
            (self._queries, [_query_row(one) for one in now.queries]),
            (self._sites, _site_rows(now)),
            (self._streams, _stream_rows(now)),
        ):
            if table.rows != rows:
                table.rows = rows
                table.update()


def _legend() -> None:
    marks = {"diamond": "◆", "circle": "●", "line": "━"}
    with ui.row().classes("q-gutter-sm text-caption"):
        for shape, colour, what in LEGEND:
            ui.label(f"{marks[shape]} {what}").style(f"color: {colour}")


def _table(columns: tuple[str, ...], key: str, text: int) -> ui.table:
    """A table. The first `text` columns and the last hold text, the others numbers."""
    numbers = columns[text:-1]
    defined = [
        {
            "name": one,
            "label": one,
            "field": one,
            "sortable": True,
            "align": "right" if one in numbers else "left",
        }
        for one in columns
    ]
    table = ui.table(columns=defined, rows=[], row_key=key, pagination=20).classes("w-full")
    table.props("dense flat wrap-cells")
    if key == "query":
        table.style("cursor: pointer")
    return table


def _renew(summary: ui.row, now: Snapshot, shown: dict[str, object]) -> None:
    chips = _chips(now)
    if chips == shown.get("chips"):
        return
    shown["chips"] = chips
    summary.clear()
    with summary:
        for text, colour in chips:
            ui.badge(text, color=colour).classes("q-pa-sm text-sm").props(
                "text-color=dark" if colour == POOR else ""
            )


def _chips(now: Snapshot) -> list[tuple[str, str]]:
    up = sum(one.state == "up" for one in now.sites)
    running = sum(one.state in WELL for one in now.queries)
    chips = [
        (f"{up} of {len(now.sites)} sites up", colour_of("up" if up == len(now.sites) else "lost")),
        (
            f"{running} of {len(now.queries)} queries well",
            colour_of("running" if running == len(now.queries) else "failed"),
        ),
    ]
    protected = [one.protection for one in now.queries if one.protection]
    if protected:
        safe = sum(one.protected for one in protected)
        chips.append(
            (
                f"{safe} of {len(protected)} protected",
                colour_of("up" if safe == len(protected) else "waiting"),
            )
        )
    if now.bottleneck:
        chips.append((f"bottleneck: {now.bottleneck}", colour_of("waiting")))
    return chips


def _query_row(query: QueryView) -> dict[str, str]:
    kept = "; ".join(text if well else f"⚠ {text}" for _, text, well in told(query))
    values = (
        query.name,
        query.site,
        query.state,
        f"{query.rate_in:,.0f}",
        f"{query.rate_out:,.0f}",
        f"{query.rows_out:,}",
        f"{query.queue:,}",
        show_ms(query.p50_ms),
        show_ms(query.p99_ms),
        query.error or kept,
    )
    return dict(zip(_QUERY_COLUMNS, values, strict=True))


def _site_state(site: SiteView) -> str:
    return f"{site.state}: {site.problem}" if site.problem else site.state


def _site_rows(now: Snapshot) -> list[dict[str, str]]:
    return [
        dict(
            zip(
                _SITE_COLUMNS,
                (one.name, _site_state(one), f"{one.load:.0%}", one.address),
                strict=True,
            )
        )
        for one in now.sites
    ]


def _stream_rows(now: Snapshot) -> list[dict[str, str]]:
    rows = []
    for stream in now.streams:
        left_out = ", ".join(f"{count:,} {why}" for why, count in stream.left_out.items())
        values = (
            stream.name,
            stream.site,
            stream.state,
            f"{stream.rate:,.0f}",
            f"{stream.rows:,}",
            stream.error or left_out,
        )
        rows.append(dict(zip(_STREAM_COLUMNS, values, strict=True)))
    return rows


def _follow(event: events.EChartPointClickEventArguments) -> None:
    query = event.data.get("query") if isinstance(event.data, dict) else None
    if query:
        _open(query)


def _open(query: str) -> None:
    ui.navigate.to(f"/query/{quote(query, safe='')}")
