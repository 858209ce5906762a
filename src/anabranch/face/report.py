"""A run as one HTML file that needs no server: what ran, how it kept its word, what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from anabranch.face.model import QueryView, Snapshot
from anabranch.face.promises import told
from anabranch.face.stories import Story, summary
from anabranch.units import show_ms

_STYLE = """
:root { color-scheme: light dark; --line: #94a3b855; --good: #15803d; --bad: #dc2626; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1080px;
padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25rem .6rem;
border-bottom: 1px solid var(--line); } td.n, th.n { text-align: right; } pre { overflow: auto;
background: #94a3b81a; padding: .8rem; } svg { width: 100%; height: 90px; }
.good { color: var(--good) }
.bad { color: var(--bad) } h2 { margin-top: 2.2rem } .dim { opacity: .65 }
polyline { fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke }
"""
_COLOURS = ("#2563eb", "#d97706")
_WIDTH, _HEIGHT = 1000.0, 80.0


def report_html(
    history: Sequence[Snapshot], happened: Iterable[Story], plans: Mapping[str, str]
) -> str:
    """`plans`: query → how it runs, as EXPLAIN says it."""
    now = history[-1]
    began, ended = _clock(history[0].at), _clock(now.at)
    parts = [
        f"<h1>Anabranch, {began} to {ended} UTC</h1>",
        f"<p>{len(now.sites)} sites, {len(now.streams)} streams, {len(now.queries)} queries.</p>",
        "<h2>Queries</h2>",
        _queries(now),
        "<h2>Sites</h2>",
        _sites(now),
        "<h2>Streams</h2>",
        _streams(now),
        "<h2>What happened</h2>",
        *_stories(happened),
    ]
    for query in now.queries:
        parts += _query(query, history, plans.get(query.name, ""))
    body = "\n".join(parts)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>Anabranch {ended}</title><style>{_STYLE}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table whose last `numbers` columns hold numbers."""
    first = len(columns) - numbers

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if index >= first else ''}>{one}</{tag}>"
            for index, one in enumerate(row)
        )

    lines = [f"<tr>{cells('th', columns)}</tr>", *(f"<tr>{cells('td', row)}</tr>" for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _state(state: str) -> str:
    good = state in ("up", "running", "done", "ended")
    return f"<span class={'good' if good else 'bad'}>{escape(state)}</span>"


def _queries(now: Snapshot) -> str:
    rows = [
        (
            escape(one.name),
            escape(one.site),
            _state(one.state),
            escape(one.error or (one.protection.text if one.protection else "")),
            f"{one.rate_in:,.0f}",
            f"{one.rate_out:,.0f}",
            f"{one.rows_out:,}",
            show_ms(one.p50_ms),
            show_ms(one.p99_ms),
        )
        for one in now.queries
    ]
    columns = ("query", "site", "state", "remarks", "in/s", "out/s", "results", "p50", "p99")
    return _table(columns, rows, 5)


def _sites(now: Snapshot) -> str:
    rows = [
        (escape(one.name), _state(one.state), escape(one.problem), f"{one.load:.0%}")
        for one in now.sites
    ]
    return _table(("site", "state", "problem", "load"), rows, 1)


def _streams(now: Snapshot) -> str:
    rows = [
        (
            escape(one.name),
            escape(one.site),
            _state(one.state),
            ", ".join(f"{count:,} {why}" for why, count in one.left_out.items()),
            f"{one.rate:,.0f}",
            f"{one.rows:,}",
        )
        for one in now.streams
    ]
    return _table(("stream", "site", "state", "left out", "tuples/s", "tuples"), rows, 2)


def _stories(happened: Iterable[Story]) -> list[str]:
    lines = []
    for story in happened:
        how = f": {summary(story)}" if len(story.events) > 1 else ""
        lines.append(f"<p><b>{_clock(story.began)}</b> {escape(story.title)}{how}</p>")
        if len(story.events) > 1:
            steps = "".join(
                f"<li>+{one.at - story.began:.1f} s {escape(one.text)}</li>" for one in story.events
            )
            lines.append(f"<ul>{steps}</ul>")
    return lines or ["<p class=dim>Nothing was noticed.</p>"]


def _query(query: QueryView, history: Sequence[Snapshot], plan: str) -> list[str]:
    points = [(one.at, seen) for one in history if (seen := one.query(query.name))]
    lines = [(what, text) for what, text, _ in told(query)]
    lines += [(f"placed: {one.task} at {one.site}", one.why) for one in query.placed]
    facts = "".join(f"<li>{escape(what)}: {escape(text)}</li>" for what, text in lines)
    return [
        f"<h2>{escape(query.name)}</h2>",
        f"<ul>{facts}</ul>" if facts else "",
        "<p class=dim>latency p50 and p99, ms</p>",
        _lines(points, (lambda one: one.p50_ms, lambda one: one.p99_ms)),
        "<p class=dim>results a second</p>",
        _lines(points, (lambda one: one.rate_out,)),
        f"<pre>{escape(plan)}</pre>" if plan else "",
    ]


def _lines(
    series: Sequence[tuple[float, QueryView]],
    figures: Sequence[Callable[[QueryView], float | None]],
) -> str:
    """A small chart: time from left to right, zero at the bottom, the largest value at the top."""
    values = [
        value for _, one in series for figure in figures if (value := figure(one)) is not None
    ]
    if not values or len(series) < 2:
        return "<p class=dim>no figures yet</p>"
    top, start, span = max(*values, 1e-9), series[0][0], (series[-1][0] - series[0][0]) or 1.0
    drawn = []
    for figure, colour in zip(figures, _COLOURS, strict=False):
        points = " ".join(
            f"{_WIDTH * (at - start) / span:.1f},{_HEIGHT * (1 - value / top):.1f}"
            for at, one in series
            if (value := figure(one)) is not None
        )
        drawn.append(f"<polyline stroke='{colour}' points='{points}'/>")
    return (
        f"<svg viewBox='0 0 {_WIDTH:.0f} {_HEIGHT:.0f}' preserveAspectRatio='none'>"
        f"{''.join(drawn)}</svg><p class=dim>largest: {top:,.0f}</p>"
    )


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
