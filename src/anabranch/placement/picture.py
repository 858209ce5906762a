"""The graph on the sites as a picture: sites as far apart as their latencies, operators in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from html import escape

import numpy as np

from anabranch.placement.costs import Sites
from anabranch.placement.network import Array
from anabranch.placement.problem import PlacementProblem

_WIDTH, _HEIGHT, _MARGIN, _BOX, _LINE, _HEAD = 1100, 760, 120, 190, 15, 22
_COLOURS = {"source": "#2563eb", "operator": "#111827", "pocket": "#b45309", "sink": "#15803d"}
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#111827}.site{font-weight:600;font-size:13px}"
    ".box{fill:#f9fafb;stroke:#9ca3af}.link{stroke:#6b7280;fill:none}"
    ".idle{stroke-dasharray:4 3;fill:white}.idle+.site{fill:#6b7280;font-weight:400}"
    ".rate{font-size:11px;fill:#374151;paint-order:stroke;stroke:white;stroke-width:3px}"
)
_ARROW = (
    '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
    'orient="auto" markerUnits="userSpaceOnUse">'
    '<path d="M0 0 8 4 0 8z" fill="#6b7280"/></marker></defs>'
)


def picture(problem: PlacementProblem, sites: Mapping[str, str]) -> str:
    """An SVG document. Arrows that carry more are wider; they show their share of the cost and the
    latency.
    """
    placed = problem.indexes(sites)
    where = _layout(np.sqrt(problem.network.mean_square))
    inside: dict[int, list[int]] = defaultdict(list)
    for vertex, site in enumerate(placed.tolist()):
        inside[site].append(vertex)
    parts = [*_links(problem, placed, where, inside)]
    for site, name in enumerate(problem.network.sites):
        parts += _site(problem, name, where[site], inside[site])
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    body = "\n".join([*parts, _legend(problem, placed)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{_ARROW}\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _layout(latency: Array) -> Array:
    """Points in the picture whose distances are about the latencies (classical scaling), pushed
    apart where boxes would overlap.
    """
    far = np.square((latency + latency.T) / 2)
    n = len(far)
    centred = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-centred @ far @ centred / 2)
    points: Array = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0)) if n > 1 else far
    points = np.pad(points, ((0, 0), (0, max(0, 2 - points.shape[1]))))[:, ::-1]
    spread = np.ptp(points, axis=0)
    points = (points - points.min(axis=0)) / np.where(spread > 0, spread, 1)
    points = points * (_WIDTH - 2 * _MARGIN, _HEIGHT - 2 * _MARGIN) + _MARGIN
    for _ in range(200):
        points = _apart(points)
    return points


def _apart(points: Array) -> Array:
    gaps = points[:, None] - points[None, :]
    size = np.array([_BOX + 20, 110])
    over = (np.abs(gaps) < size).all(axis=2) & ~np.eye(len(points), dtype=bool)
    turn = np.arange(len(points))[:, None, None] * np.array([0.01, 0.013])
    push = np.where(over[:, :, None], np.sign(gaps + turn - turn.transpose(1, 0, 2)) * 4, 0)
    moved: Array = np.clip(points + push.sum(axis=1), _MARGIN, (_WIDTH - _MARGIN, _HEIGHT - 80))
    return moved


def _height(vertices: list[int]) -> float:
    return _HEAD + _LINE * len(vertices) + 6


def _site(problem: PlacementProblem, name: str, at: Array, vertices: list[int]) -> list[str]:
    height = _height(vertices)
    x, y = at[0] - _BOX / 2, at[1] - height / 2
    kind = "box" if vertices else "box idle"
    parts = [
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{_BOX}" height="{height}" rx="6" class="{kind}"/>',
        f'<text x="{x + 8:.0f}" y="{y + 17:.0f}" class="site">{escape(name)}</text>',
    ]
    for line, vertex in enumerate(vertices):
        vertex_ = problem.vertices[vertex]
        text = vertex_.name if len(vertex_.name) < 28 else f"{vertex_.name[:26]}…"
        parts.append(
            f'<text x="{x + 8:.0f}" y="{y + _HEAD + _LINE * (line + 0.8):.0f}"'
            f' style="fill:{_COLOURS[vertex_.kind]}">'
            f"<title>{vertex_.kind} {escape(vertex_.name)}</title>"
            f"{escape(text)}</text>"
        )
    return parts


def _links(
    problem: PlacementProblem, placed: Sites, where: Array, inside: Mapping[int, list[int]]
) -> list[str]:
    """One arrow for all that flows from one site to another."""
    costs = problem.link_costs(placed)
    flows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for link, (a, b) in enumerate(zip(problem.producers, problem.consumers, strict=True)):
        if placed[a] != placed[b]:
            flows[int(placed[a]), int(placed[b])].append(link)
    total = costs.sum() or 1.0
    most = max((problem.costs.rate[links].sum() for links in flows.values()), default=1.0)
    drawn = []
    for (a, b), links in flows.items():
        path, middle = _curve(where[a], where[b], _height(inside[a]), _height(inside[b]))
        width = 1 + 5 * problem.costs.rate[links].sum() / most
        latency = 1e3 * np.sqrt(problem.network.mean_square[a, b])
        names = ", ".join(
            dict.fromkeys(problem.vertices[problem.producers[one]].name for one in links)
        )
        label = f"{costs[links].sum() / total:.0%} · {latency:.3g} ms"
        drawn += [
            f'<path d="{path}" class="link" stroke-width="{width:.1f}" marker-end="url(#to)">'
            f"<title>{escape(names)}</title></path>",
            f'<text x="{middle[0]:.0f}" y="{middle[1] - 8:.0f}" class="rate">{label}</text>',
        ]
    return drawn


def _curve(begin: Array, end: Array, height: float, other: float) -> tuple[str, Array]:
    """A curve from the edge of one box to that of the other, bent to its left; and its middle."""
    bend = (begin + end) / 2 + 0.12 * np.array([begin[1] - end[1], end[0] - begin[0]])
    t = np.linspace(0, 1, 101)[:, None]
    points = (1 - t) ** 2 * begin + 2 * t * (1 - t) * bend + t**2 * end
    half = np.array([[_BOX, height], [_BOX, other]]) / 2 + 2
    outside = [
        (np.abs(points - at) > size).any(axis=1)
        for at, size in zip((begin, end), half, strict=True)
    ]
    free = np.flatnonzero(outside[0] & outside[1])
    first, last = (free[0] / 100, free[-1] / 100) if len(free) else (0.0, 1.0)
    control = (
        (1 - first) * (1 - last) * begin
        + ((1 - first) * last + first * (1 - last)) * bend
        + first * last * end
    )
    (x1, y1), (x2, y2) = points[round(100 * first)], points[round(100 * last)]
    path = f"M{x1:.0f} {y1:.0f} Q{control[0]:.0f} {control[1]:.0f} {x2:.0f} {y2:.0f}"
    return path, points[round(50 * (first + last))]


def _legend(problem: PlacementProblem, placed: Sites) -> str:
    kinds = ", ".join(
        f'<tspan style="fill:{colour}">{kind}</tspan>' for kind, colour in _COLOURS.items()
    )
    cost = f"Σ rate · latency² = {problem.cost(placed):.3g}"
    text = "wide: much flows · %: share of the cost · ms: latency"
    y = _HEIGHT - 14
    return f'<text x="14" y="{y}" class="rate">{cost} — {text} — {kinds}</text>'
