"""The system's picture as options of an ECharts graph: where things are, what runs there, what
flows.

Pure, and the same names get the same places: a picture whose parts wander cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from anabranch.face.model import LinkView, Snapshot, TaskView

Point = tuple[float, float]


@dataclass(frozen=True)
class Canvas:
    """How large the picture is, in units of its own; `site` is the largest radius of a site."""

    width: float
    height: float
    site: float


FEW = 16
"""Sites that stand on an ellipse, with everything written beside it."""
WIDE, NARROW = Canvas(1240.0, 500.0, 72.0), Canvas(366.0, 460.0, 48.0)


def site_points(names: Sequence[str], canvas: Canvas = WIDE) -> dict[str, Point]:
    """The sites' places: a few stand on an ellipse, many in rows."""
    if len(names) > FEW:
        return _rows(names, canvas)
    points: dict[str, Point] = {}
    for index, name in enumerate(names):
        angle = math.pi + 2 * math.pi * index / len(names)
        x = canvas.width / 2 + (canvas.width / 2 - canvas.site) * math.cos(angle)
        y = canvas.height / 2 + (canvas.height / 2 - canvas.site) * math.sin(angle)
        points[name] = (x, y)
    return points


def _rows(names: Sequence[str], canvas: Canvas) -> dict[str, Point]:
    columns, rows = _grid(len(names), canvas)
    return {
        name: (
            canvas.width * (index % columns + 0.5) / columns,
            canvas.height * (index // columns + 0.5) / rows,
        )
        for index, name in enumerate(names)
    }


def _grid(count: int, canvas: Canvas) -> tuple[int, int]:
    """The numbers of columns and rows, for cells that are about square."""
    columns = math.ceil(math.sqrt(count * canvas.width / canvas.height))
    return columns, math.ceil(count / columns)


def site_radius(count: int, canvas: Canvas = WIDE) -> float:
    """A radius with which neighbours usually do not touch."""
    if count <= FEW:
        return canvas.site * min(1.0, 2.8 / math.sqrt(max(1, count)))
    columns, rows = _grid(count, canvas)
    return 0.36 * min(canvas.width / columns, canvas.height / rows)


def member_points(snapshot: Snapshot, canvas: Canvas = WIDE) -> dict[str, Point]:
    """The places of streams and tasks inside their sites; sinks are not drawn."""
    sites = site_points(sorted(one.name for one in snapshot.sites), canvas)
    members: dict[str, list[str]] = {}
    for stream in snapshot.streams:
        members.setdefault(stream.site, []).append(stream.name)
    for task in snapshot.tasks:
        if not task.sink:
            members.setdefault(task.site, []).append(task.name)
    radius = 0.62 * site_radius(len(sites), canvas)
    points: dict[str, Point] = {}
    for site, names in members.items():
        x, y = sites.get(site, (canvas.width / 2, canvas.height / 2))
        if len(names) == 1:
            points[names[0]] = (x, y)
            continue
        for index, name in enumerate(sorted(names)):
            angle = -math.pi / 2 + 2 * math.pi * index / len(names)
            points[name] = (x + radius * math.cos(angle), y + radius * math.sin(angle))
    return points


CALM, BUSY, FULL, DEAD = "#64748b", "#f59e0b", "#dc2626", "#b91c1c"
SITE, STREAM, TASK = "#0d9488", "#3b82f6", "#8b5cf6"
NEUTRAL = "#64748b"
"""Readable on white and on black."""
LEGEND = (
    ("diamond", STREAM, "stream"),
    ("circle", TASK, "operator"),
    ("line", CALM, "flows"),
    ("line", BUSY, "waits > 1 s"),
    ("line", FULL, "waits > 5 s, or the bottleneck"),
)
"""What the picture is made of; wider lines carry more tuples a second."""


def graph_options(now: Snapshot, canvas: Canvas = WIDE) -> dict[str, object]:
    """The graph's options. Widths grow with the logarithm of the rate, colours with how long tuples
    wait.
    """
    return {
        "animation": False,
        "tooltip": {"confine": True},
        "series": [
            {
                "type": "graph",
                "layout": "none",
                "roam": "move",
                "left": 0,
                "right": 0,
                "top": 22,
                "bottom": 8,
                "edgeSymbol": ["none", "arrow"],
                "edgeSymbolSize": 7,
                "label": {"show": True, "position": "bottom", "fontSize": 11, "color": NEUTRAL},
                "labelLayout": {"hideOverlap": True},
                "emphasis": {"disabled": True},
                "data": [*_corners(canvas), *_sites(now, canvas), *_members(now, canvas)],
                "links": _edges(now),
            }
        ],
    }


def _node(key: str, at: tuple[float, float], name: str, tip: str, **more: Any) -> dict[str, object]:
    return {
        "id": key,
        "name": name,
        "x": round(at[0], 1),
        "y": round(at[1], 1),
        "tooltip": {"formatter": tip},
        **more,
    }


def _corners(canvas: Canvas) -> list[dict[str, object]]:
    """Invisible nodes in the corners: they keep the picture's size whatever is on it."""
    return [
        _node(f"corner {at}", at, "", "", symbolSize=0, silent=True)
        for at in ((0.0, 0.0), (canvas.width, canvas.height))
    ]


def _sites(now: Snapshot, canvas: Canvas) -> list[dict[str, object]]:
    points = site_points(sorted(one.name for one in now.sites), canvas)
    size = 2 * site_radius(len(now.sites), canvas)
    nodes = []
    for site in now.sites:
        colour = {"up": SITE, "starting": BUSY}.get(site.state, DEAD)
        tip = f"site {escape(site.name)}: {escape(site.state)}<br>load {site.load:.0%}"
        tip += f"<br>{escape(site.problem)}" if site.problem else ""
        name = site.name if site.state == "up" else f"{site.name} {site.state}"
        nodes.append(
            _node(
                f"site {site.name}",
                points[site.name],
                name,
                tip,
                symbolSize=size,
                z=1,
                itemStyle={
                    "color": f"{colour}22",
                    "borderColor": colour,
                    "borderWidth": 1.5,
                    "borderType": "solid" if site.state == "up" else "dashed",
                },
                label={"position": "top", "distance": 2, "color": colour, "fontWeight": "bold"},
            )
        )
    return nodes


def _members(now: Snapshot, canvas: Canvas) -> list[dict[str, object]]:
    points = member_points(now, canvas)
    small = 0.7 if len(now.sites) > FEW else 1.0
    streams = [
        _node(
            one.name,
            points[one.name],
            one.name if len(now.sites) <= FEW else "",
            f"stream {escape(one.name)}: {escape(one.state)}<br>{one.rate:,.0f} tuples/s",
            symbol="diamond",
            symbolSize=14 * small,
            itemStyle={"color": STREAM},
        )
        for one in now.streams
    ]
    return streams + [_task(one, now, points[one.name], small) for one in now.tasks if not one.sink]


def _task(
    task: TaskView, now: Snapshot, at: tuple[float, float], small: float
) -> dict[str, object]:
    worst = task.name == now.bottleneck
    style = {
        "color": DEAD if task.error else TASK,
        "borderColor": FULL,
        "borderWidth": 4 if worst else 0,
    }
    tip = (
        f"{escape(task.name)} at {escape(task.site)}: {escape(task.state)}<br>"
        f"in {task.rate_in:,.0f}/s, out {task.rate_out:,.0f}/s<br>{task.queue:,} wait"
    )
    tip += f"<br>{escape(task.error)}" if task.error else ""
    tip += "<br><b>the bottleneck</b>" if worst else ""
    named = (
        task.name.partition("/")[0] == task.query
    )  # a worker's name is its query's with a number
    label = task.name if named and len(now.sites) <= FEW else ""
    return _node(
        task.name,
        at,
        label,
        tip,
        symbolSize=(18 if worst else 13) * small,
        itemStyle=style,
        query=task.query,
    )


def _edges(now: Snapshot) -> list[dict[str, object]]:
    rates = {one.name: one.rate for one in now.streams}
    rates |= {one.output: one.rate_out for one in now.tasks if one.output}
    makers = {one.name: (one.name, one.site) for one in now.streams}
    makers |= {one.output: (one.name, one.site) for one in now.tasks if one.output and not one.sink}
    links = {(one.sender, one.receiver): one for one in now.links}
    few = len(now.sites) <= FEW
    edges = []
    for task in now.tasks:
        if task.sink:
            continue
        for stream in task.inputs:
            if stream in makers:
                maker, site = makers[stream]
                link = links.get((site, task.site))
                edges.append(_edge(maker, task, rates.get(stream, 0.0), link, few=few))
    return edges


def _edge(
    source: str, task: TaskView, rate: float, link: LinkView | None, *, few: bool
) -> dict[str, object]:
    waits_s = task.queue / max(rate, 1.0)
    colour = CALM if waits_s < 1 else BUSY if waits_s < 5 else FULL
    flow = f"{rate:,.0f}/s"
    if link and link.round_trip_ms is not None:
        flow += f" · {link.round_trip_ms:,.0f} ms"
    return {
        "source": source,
        "target": task.name,
        "lineStyle": {
            "color": colour,
            "width": round(1.0 + math.log10(1.0 + rate), 1),
            "curveness": 0.15,
            "opacity": 0.8 if few or waits_s >= 1 else 0.35,
        },
        "label": {"show": bool(link) and few, "formatter": flow, "fontSize": 10, "color": NEUTRAL},
        "tooltip": {
            "formatter": f"{escape(source)} → {escape(task.name)}<br>{flow}<br>{task.queue:,} wait"
        },
    }
